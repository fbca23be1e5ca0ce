"""Errors on the wire: RFC 9457 problem details, one shape for all of them."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """RFC 9457 problem details."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str


class ServiceError(Exception):
    """Something that the caller is told about."""

    def __init__(
        self, status: int, kind: str, title: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.title, self.detail = status, kind, title, detail
        self.headers = dict(headers or {})


def problem(
    status: int, kind: str, title: str, detail: str, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    """A problem as a response; `kind` names it for programs and never changes its meaning."""
    body = Problem(type=f"urn:medverify:problem:{kind}", title=title, status=status, detail=detail, **more)
    return JSONResponse(body.model_dump(), status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make the app answer every error with a problem."""

    @app.exception_handler(ServiceError)
    async def service_error(_: Request, error: ServiceError) -> JSONResponse:
        return problem(error.status, error.kind, error.title, error.detail, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        faults = [{"field": _pointer(item["loc"]), "expected": item["msg"]} for item in error.errors()]
        detail = "; ".join(f"{fault['field']}: {fault['expected']}" for fault in faults[:5])
        return problem(422, "invalid-request", "The request does not fit the schema", detail, errors=faults)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> JSONResponse:
        title = str(error.detail)
        return problem(error.status_code, "http", title, title, error.headers)

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        return problem(500, "internal", "Internal error", "The service met an error of its own; it is in its log.")


def _pointer(location: tuple[int | str, ...]) -> str:
    """Dotted path of a field; the names that only tell the two request shapes apart are left out."""
    return ".".join(str(part) for part in location if part not in ("body", "one", "many")) or "body"
