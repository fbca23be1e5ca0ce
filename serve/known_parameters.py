"""Parameters in the address that a route does not know are refused: a misspelt weight must not pass for a default."""

from fastapi import Request

from serve.errors import unfit


def known_parameters(request: Request) -> None:
    """A dependency of all routes.

    Raises:
        ServiceError: 422, naming each parameter that the route's description has not.
    """
    if not request.query_params:
        return
    route = request.scope["route"]
    described = request.app.openapi()["paths"].get(route.path, {}).get(request.method.lower())
    if described is None:  # not part of the interface
        return
    known = [parameter["name"] for parameter in described.get("parameters", ()) if parameter["in"] == "query"]
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        expected = f"one of {', '.join(known)}" if known else "no parameters in the address"
        raise unfit([{"field": name, "expected": expected} for name in unknown])
