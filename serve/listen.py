"""The listening socket of both services: what a connection may cost before the application sees a request."""

import signal
from asyncio import TimerHandle, Transport
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_HEAD_BYTES = 65_536  # request line and headers; as much as common servers and proxies take
_NOT_STARTED = 3  # uvicorn's own exit status
HEAD_S = 60.0  # for the whole head of a request, also the first one of a connection


class _HeadTooLargeError(Exception):
    pass


class GuardedProtocol(HttpToolsProtocol):
    """Reads HTTP in C, and ends a connection whose headers, or trailers behind a body, are too large (431) or too late (408).

    The parser itself keeps whatever arrives until a header line or the head is complete.
    """

    _unplaced = 0  # bytes that arrived since the last head was complete or the last of a body was passed on
    _fields = 0  # bytes of the headers and trailers of this request that the parser gave out
    _in_head = False
    _timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_S, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unplaced += len(data)
        super().data_received(data)
        if self._unplaced > MAX_HEAD_BYTES:
            self._refuse(431, f"the headers exceed {MAX_HEAD_BYTES} bytes")
        elif self._in_head and self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self._too_late)

    def on_message_begin(self) -> None:
        self._in_head, self._fields = True, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)  # with ": " and the end of the line
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._unplaced = False, 0
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unplaced = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unplaced = 0
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._fields += size
        if self._fields > MAX_HEAD_BYTES:
            self._refuse(431, f"the headers exceed {MAX_HEAD_BYTES} bytes")
            raise _HeadTooLargeError  # stops the parser

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():  # else the parser was stopped by the refusal above
            super().send_400_response(msg)

    def _too_late(self) -> None:
        self._timer = None
        if self._in_head:
            self._refuse(408, "the headers did not arrive in time")
        else:  # not a byte of a request
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, detail: str) -> None:
        if self.transport.is_closing():
            return
        self._stop_timer()
        if self.cycle is None or self.cycle.response_complete:  # else the answer to an earlier request is being written
            head = (
                f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(detail)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(STATUS_LINE[status] + head.encode() + detail.encode())
        self.transport.close()


class Drain(Protocol):
    """An application that can be asked to take no more work."""

    def begin_drain(self) -> None:
        """Refuse new work from now on."""
        ...

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        ...


class DrainingServer(uvicorn.Server):
    """Listens on while the application finishes what it has: whoever asks is told that it is about to stop.

    A first signal begins that; a second one does not wait for it.
    """

    def __init__(self, config: uvicorn.Config, drain: Drain, drain_s: int) -> None:
        super().__init__(config)
        self._drain = drain
        self._drain_s = drain_s
        self._asked: signal.Signals | None = None
        self._ends_at = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._asked is not None or not self.started:
            super().handle_exit(sig, frame)
            return
        self._asked = signal.Signals(sig)
        self._ends_at = monotonic() + self._drain_s
        self._drain.begin_drain()

    async def on_tick(self, counter: int) -> bool:
        left_s = self._ends_at - monotonic()
        if self._asked is not None and not self.should_exit and (left_s <= 0 or self._drain.idle):
            self.config.timeout_graceful_shutdown = max(1, round(left_s))  # answers may be on their way to the clients
            super().handle_exit(self._asked, None)
        return await super().on_tick(counter)


def listen(app: ASGIApp, *, host: str, port: int, drain_s: int, drain: Drain | None = None, **options: Any) -> None:
    """Serve the app until SIGTERM or SIGINT; requests under way then have `drain_s` seconds left.

    Args:
        drain: asked to refuse new work meanwhile; None: the socket is closed at once.
        options: further ones of uvicorn.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        timeout_graceful_shutdown=drain_s,
        http=GuardedProtocol,
        ws="none",
        log_level="info",
        **options,
    )
    server = uvicorn.Server(config) if drain is None else DrainingServer(config, drain, drain_s)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        raise SystemExit(_NOT_STARTED)
