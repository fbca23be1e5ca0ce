"""Requests that are too large or too slow are refused while they arrive, not after they were read."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import problem


class _RefusedError(Exception):
    pass


class BodyLimit:
    """ASGI middleware: answers 413 once a body exceeds `limit` bytes, announced or not, and 408 if it takes over `seconds`.

    `larger` has other limits for single paths, whose routes never hold a body as a whole.
    """

    def __init__(self, app: ASGIApp, limit: int, seconds: float, larger: Mapping[str, int] | None = None) -> None:
        self._app = app
        self._limit = limit
        self._larger = dict(larger or {})
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._larger.get(scope["path"], self._limit)
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            await _too_large(limit)(scope, receive, send)
            return
        size = 0
        complete = False
        refusal: Response | None = None
        deadline = asyncio.get_running_loop().time() + self._seconds

        async def limited() -> Message:
            nonlocal size, complete, refusal
            if complete:  # whoever asks now waits for the client to leave
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                refusal = self._too_slow()
                raise _RefusedError from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > limit:
                refusal = _too_large(limit)
                raise _RefusedError
            return message

        async def unless_refused(message: Message) -> None:
            if refusal is None:  # else it is the app's own answer to the error above
                await send(message)

        with suppress(_RefusedError):
            await self._app(scope, limited, unless_refused)
        if refusal is not None:  # seen while the body was read, so nothing was sent yet
            await refusal(scope, receive, send)

    def _too_slow(self) -> Response:
        detail = f"the body did not arrive within {self._seconds:g} s"
        return problem(408, "body-too-slow", "The request is too slow", detail, {"Connection": "close"})


def _too_large(limit: int) -> Response:
    return problem(413, "body-too-large", "The request is too large", f"the body exceeds {limit} bytes")
