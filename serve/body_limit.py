"""Requests that are too large are refused while they arrive, not after they were read."""

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import problem


class _TooLargeError(Exception):
    pass


class BodyLimit:
    """ASGI middleware: answers 413 once a body exceeds `limit` bytes, announced or not."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._limit:
            await self._refuse(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limit:
                raise _TooLargeError
            return message

        async def unless_too_large(message: Message) -> None:
            if size <= self._limit:  # else it is the app's own answer to the error above
                await send(message)

        with suppress(_TooLargeError):
            await self._app(scope, counted, unless_too_large)
        if size > self._limit:  # seen while the body was read, so nothing was sent yet
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"the body exceeds {self._limit} bytes"
        await problem(413, "body-too-large", "The request is too large", detail)(scope, receive, send)
