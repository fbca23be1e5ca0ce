"""Whoever has no key is turned away before a byte of the body is read, and from routes that forgot to ask."""

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.callers import Door
from serve.errors import ServiceError, problem

#: Answered to anybody: what watches the process, the description of the API, and the page, which is files without data.
OPEN = frozenset({"/", "/health", "/ready", "/openapi.json"})
#: As are the files that the page consists of.
OPEN_FOLDERS = ("/page/",)


class KeysFirst:
    """ASGI middleware: 401 without a valid key, where keys are in force.

    The caller is kept with the request as `state.caller`, and the route looks at what its key is good for.
    """

    def __init__(self, app: ASGIApp, door: Door, open_paths: Collection[str] = OPEN) -> None:
        self._app = app
        self._door = door
        self._open = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]):
            try:
                scope.setdefault("state", {})["caller"] = await self._door.let_in(_token(Headers(scope=scope)))
            except ServiceError as error:
                refusal = problem(error.status, error.kind, error.title, error.detail, error.headers)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith(OPEN_FOLDERS)


def _token(headers: Headers) -> str | None:
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" and token else headers.get("X-API-Key")
