"""What is around a whole application: added middleware would not see the answers to errors that nobody foresaw."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Scope

from serve.exposition import UNKNOWN


class WrappedApp(FastAPI):
    """An application all of whose answers pass through `around`."""

    def __init__(self, around: Callable[[ASGIApp], ASGIApp], **fields: Any) -> None:
        # A redirect would name whatever host the request did, and a client would send its body and its key there.
        super().__init__(redirect_slashes=False, **fields)
        self._around = around

    def build_middleware_stack(self) -> ASGIApp:
        return self._around(super().build_middleware_stack())


def route_of(scope: Scope) -> str:
    """The path of the route that answered, with its parameters' names: few of them, and nothing that a caller made up.

    A request that was refused before it came to its route is that route's all the same.
    """
    if (route := scope.get("route")) is not None:
        return str(route.path)
    if "endpoint" in scope:
        return UNKNOWN if scope.get("path_params") else str(scope["path"])
    return next(
        (path for path, route in _routes(scope["app"].routes) if route.matches(scope)[0] is not Match.NONE), UNKNOWN
    )


def _routes(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, BaseRoute]]:
    """All routes with their paths, also those that FastAPI keeps with the router that was included (ours have no prefix)."""
    for route in routes:
        if (included := getattr(route, "original_router", None)) is not None:
            yield from _routes(included.routes)
        elif (path := getattr(route, "path", None)) is not None:
            yield path, route
