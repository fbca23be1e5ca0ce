"""The page: `GET /` and the files that it consists of. They hold no data and are open to anybody."""

import hashlib
from collections.abc import Awaitable, Callable
from importlib import resources

from fastapi import APIRouter, Request
from fastapi.responses import Response

from verifier.examples import example_cases
from verifier.types import Case

#: Nothing but this server's own files; no script or style within the page, no way out, and no text becomes markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}


def router() -> APIRouter:
    """The page at `/`, its files and the example cases under `/page/`. All of it is read once."""
    routes = APIRouter(include_in_schema=False)
    files = {
        file.name: file.read_bytes()
        for file in resources.files("serve").joinpath("page").iterdir()
        if _ending(file.name) in _KINDS
    }
    files["cases.json"] = ("[" + ",".join(map(Case.model_dump_json, example_cases())) + "]").encode()
    for name, content in files.items():
        path = "/" if name == "index.html" else f"/page/{name}"
        routes.add_api_route(path, _answers(content, _KINDS[_ending(name)]), methods=["GET", "HEAD"])
    return routes


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def _answers(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    headers = {
        "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "Cache-Control": "no-cache",  # ask each time: after an update the page and its scripts must fit
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)

    return answer
