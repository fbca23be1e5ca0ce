"""Errors on the wire: RFC 9457 problem details, one shape for all of them."""

import re
from collections.abc import Mapping, Sequence
from json import JSONDecodeError
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from configs.strict_json import MOST_KEYS, RepeatedKeyError
from serve.security_headers import HEADERS
from serve.strict_bodies import RepeatedKeyInBodyError
from verifier.types import field_as_written

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
        self, status: int, kind: str, title: str, detail: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.title, self.detail = status, kind, title, detail
        self.headers = dict(headers or {})
        self.more = more


def problem(
    status: int, kind: str, title: str, detail: str, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    """A problem as a response; `kind` names it for programs and never changes its meaning."""
    body = Problem(type=f"urn:medverify:problem:{kind}", title=title, status=status, detail=detail, **more)
    return JSONResponse(body.model_dump(), status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


# All but the last part of an absolute path; not of a URL.
_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/:;,'\"]+/)+")


def without_folders(text: str) -> str:
    """A text for callers: where files lie is for the log."""
    return _FOLDERS.sub("…/", text)


#: Faults of one request that are told: an answer is no larger than it needs to be, whatever was sent.
MOST_FAULTS = 20


def unfit(faults: Sequence[Mapping[str, str]]) -> ServiceError:
    """A request that does not fit: each fault names a `field` by its dotted path and what was `expected` there.

    The first `MOST_FAULTS` are told.
    """
    detail = "; ".join(f"{fault['field']}: {fault['expected']}" for fault in faults[:5])
    return ServiceError(
        422, "invalid-request", "The request does not fit the schema", detail, errors=list(faults[:MOST_FAULTS])
    )


def repeated(key: str, where: str = "") -> dict[str, str]:
    """The fault of a key that is there twice; `where` comes before its name."""
    return {"field": where + (key or "(empty)"), "expected": "one value: this key is there twice"}


def expected_by(error: Mapping[str, Any]) -> str:
    """What pydantic expected, in words for callers: they know of objects, not of our classes."""
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "Input should be an object"
    if error["type"] == "union_tag_invalid":  # its message names the function that looks at the tag
        return f"Input should be of one of the kinds {error['ctx']['expected_tags']}"
    return str(error["msg"])


def unfit_json(error: ValueError, where: str = "body") -> dict[str, str]:
    """The fault of a text that cannot be read as JSON at all."""
    if isinstance(error, RepeatedKeyError):
        return repeated(error.key, "" if where == "body" else f"{where}: ")
    if isinstance(error, JSONDecodeError):
        return {"field": where, "expected": f"JSON; at character {error.pos}: {error.msg}"}
    limits = f"not nested too deeply, numbers of a usual length, at most {MOST_KEYS} keys in an object"
    return {"field": where, "expected": f"JSON: text in UTF-8, {limits}"}


def described(statuses: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: what each status means, and that its body is a `Problem`."""
    content = {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}
    return {status: {"description": meaning, "content": content} for status, meaning in statuses.items()}


#: Problems of every route that judges.
JUDGING = described(
    {
        400: "The body is not text, or is nested too deeply, to be read as JSON.",
        401: "A key is needed, or the one that was sent is not valid.",
        403: "The key is not good for this.",
        408: "The body did not arrive in time.",
        413: "The request or its batch is too large.",
        422: "The request does not fit the schema.",
        500: "The service met an error of its own.",
        503: "The service is busy; come back after Retry-After seconds.",
    }
)


#: Problems of every route that shows something to those whose key is good for it.
READING = described(
    {
        401: "A key is needed, or the one that was sent is not valid.",
        403: "The key is not good for this.",
        422: "The request does not fit the schema.",
        500: "The service met an error of its own.",
        503: "It cannot be read at the moment; come back after Retry-After seconds.",
    }
)


def install(app: FastAPI) -> None:
    """Make the app answer every error with a problem."""

    @app.exception_handler(ServiceError)
    async def service_error(_: Request, error: ServiceError) -> JSONResponse:
        return problem(error.status, error.kind, error.title, error.detail, error.headers, **error.more)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        refusal = unfit([_fault(item, error.body) for item in error.errors()[:MOST_FAULTS]])
        return problem(refusal.status, refusal.kind, refusal.title, refusal.detail, **refusal.more)

    @app.exception_handler(RepeatedKeyInBodyError)
    async def repeated_key(_: Request, error: RepeatedKeyInBodyError) -> JSONResponse:
        refusal = unfit([repeated(error.key)])
        return problem(refusal.status, refusal.kind, refusal.title, refusal.detail, **refusal.more)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> JSONResponse:
        title = str(error.detail)
        return problem(error.status_code, "http", title, title, error.headers)

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        detail = "The service met an error of its own; it is in its log."
        # Starlette sends this one around all middleware.
        return problem(500, "internal", "Internal error", detail, HEADERS)


#: Only tell the shapes of a body apart; nobody wrote them.
_SHAPES = ("one", "many", "nemo_gym")


def _fault(error: Mapping[str, Any], body: Any) -> dict[str, str]:
    """A field by its dotted path in the body as it was sent, and what was expected there."""
    where, *path = error["loc"]
    if where != "body":  # a parameter of the address, or a header
        return {"field": ".".join(map(str, path)), "expected": expected_by(error)}
    if error["type"] == "json_invalid":  # the path is a position
        return {"field": "body", "expected": f"JSON; at character {path[0]}: {error['ctx']['error']}"}
    if isinstance(error["input"], bytes):  # FastAPI did not read it as JSON
        return {"field": "body", "expected": "JSON, sent with the header Content-Type: application/json"}
    path = path[1:] if path[:1] and path[0] in _SHAPES else path
    return {"field": _as_written(path, body) or "body", "expected": expected_by(error)}


def _as_written(path: list[str | int], body: Any) -> str:
    """The dotted path in the body as it was sent, where the fields of a case may stand in several places."""
    sent = body if isinstance(body, dict) else {}
    case: Any = None
    within = 0  # parts of the path that lead to the case
    if path[:1] == ["case"]:
        case, within = sent.get("case", sent), 1
    elif path[:1] in (["cases"], ["candidates"]) and len(path) > 1:
        case, within = sent[str(path[0])][int(path[1])], 2
    elif path[:1] == ["items"] and len(path) > 2:
        path, case, within = _in_item(path, sent["items"][int(path[1])])
    else:
        case = sent
    before = path[:within] if path[:1] != ["case"] or "case" in sent else []
    return ".".join(filter(None, [*map(str, before), field_as_written(path[within:], case)]))


def _in_item(path: list[str | int], item: Any) -> tuple[list[str | int], Any, int]:
    """The path without the item's kind, which nobody wrote there; the case in the item, and how far the path leads to it."""
    before, [_, *rest] = path[:2], path[2:]
    if rest[:1] != ["case"]:
        return [*before, *rest], None, len(path)
    if isinstance(item, dict) and "case" in item:
        return [*before, *rest], item["case"], 3
    return [*before, *rest[1:]], item, 2
