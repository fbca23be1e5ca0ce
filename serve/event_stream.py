"""Server-sent events: named pieces of JSON, each sent when it happens."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "text/event-stream"
ALIVE = b": still at work\n\n"  # a comment: clients skip it
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies must not collect what is sent


def event(name: str, data: Any) -> bytes:
    """One event. Its JSON is ASCII, so that no character in it can end a line."""
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode("ascii")


class EventStream(StreamingResponse):
    """Sends events until they end or the client leaves; then their source is closed, whatever it was doing."""

    def __init__(self, events: AsyncIterator[bytes], source: AsyncGenerator[Any, None]) -> None:
        super().__init__(events, headers=HEADERS, media_type=MEDIA_TYPE)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source):
            await super().__call__(scope, receive, send)
