"""Many clients at once, each with one search in flight, and how long every search took."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from time import perf_counter
from types import TracebackType
from typing import Self, cast
from urllib.parse import urlsplit

Ask = Callable[[str], Awaitable[str]]  # a query to the outcome's name: "200" for an answer, anything else for an error

PAUSE_S = 0.01  # after an error
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class Load:
    """What a load test measured."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)  # seconds, of answers only
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    @property
    def errors(self) -> int:
        return sum(self.outcomes.values()) - len(self.latencies)

    def quantile_ms(self, share: float) -> float:
        """Milliseconds within which this share of the answers came; NaN without answers."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else float("nan")


async def run_load(clients: Sequence[Ask], queries: Iterator[str], seconds: float) -> Load:
    """Let every client ask one query after another until the time is over. An iterator that ends ends the test."""
    load = Load()
    started = perf_counter()

    async def client(ask: Ask) -> None:
        for query in queries:
            asked = perf_counter()
            outcome = await ask(query)
            load.outcomes[outcome] += 1
            if outcome == "200":
                load.latencies.append(perf_counter() - asked)
            else:  # a refusal may come at once: others must have their turn
                await asyncio.sleep(PAUSE_S)
            if perf_counter() - started > seconds:
                return

    await asyncio.gather(*map(client, clients))
    load.seconds = perf_counter() - started
    return load


class Connection(asyncio.Protocol):
    """One kept-alive HTTP/1.1 connection; light, so that the measuring costs little of the machine.

    One that is lost is made anew for the next request.
    """

    def __init__(self, url: str, k: int = 10) -> None:
        """Nothing is sent yet.

        Args:
            url: of the server.
            k: passages that `ask` asks for.

        Raises:
            ValueError: not the address of a server.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r}: expected an address such as http://127.0.0.1:8081")
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if self._tls else 80)
        self._root, self._netloc = parts.path.rstrip("/"), parts.netloc
        self._k = k
        self._buffer = bytearray()
        self._end = 0  # of the answer in the buffer, once its head was read
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport:
            self._transport.close()

    async def _connect(self) -> None:
        tls = True if self._tls else None
        await asyncio.get_running_loop().create_connection(lambda: self, self._host, self._port, ssl=tls)

    async def ask(self, query: str) -> str:
        """Search at `/retrieve`; returns the status, or the name of the error that the connection ended with."""
        body = json.dumps({"queries": [query], "topk": self._k, "return_scores": True}).encode()
        try:
            return (await self.post("/retrieve", body))[9:12].decode()
        except OSError as error:
            return type(error).__name__

    async def post(self, path: str, body: bytes) -> bytes:
        """Send JSON; returns the whole answer, head and body.

        Raises:
            OSError: the connection cannot be made, or is lost.
        """
        if self._transport is None or self._transport.is_closing():
            await self._connect()
        self._buffer.clear()
        self._end = 0
        self._answer = asyncio.get_running_loop().create_future()
        head = (
            f"POST {self._root}{path} HTTP/1.1\r\nHost: {self._netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        cast(asyncio.Transport, self._transport).write(head.encode() + body)
        return await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._end and (head := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._buffer, 0, head)
            self._end = head + 4 + (int(length[1]) if length else 0)
        if self._end and len(self._buffer) >= self._end and self._answer and not self._answer.done():
            self._answer.set_result(bytes(self._buffer))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("closed by the server"))
