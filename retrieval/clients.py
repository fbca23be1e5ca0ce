"""What our clients of HTTP services share: when a request is sent again, how a refusal is told, whose connections are used."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import monotonic

import httpx2

from retrieval.answers import ask
from retrieval.passage import RetrievalError, UnavailableError

PASSING = frozenset({500, 502, 503, 504})  # what may be another status soon
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 10.0
_CONNECTIONS = 256
_MOST_BYTES = 2**20  # of what a service says of itself


class NotToldError(Exception):
    """A service does not say what it was asked about itself."""


class LoopClient:
    """The client of the running event loop; connections cannot move from one loop to another."""

    def __init__(self, url: str) -> None:
        """Nothing is opened yet."""
        self._url = url
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> httpx2.AsyncClient:
        """The client; it has no time limits of its own, for those are its caller's, over all tries together."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            limits = httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
            self._client = httpx2.AsyncClient(base_url=self._url, timeout=None, limits=limits)
            self._loop = loop
        return self._client

    async def aclose(self) -> None:
        """Close the connections. May be called more than once."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None


def told(url: str, field: str, *, timeout_s: float, retries: int) -> str:
    """Ask a service's `/info` for a text, again and again where any request would be tried again. Blocks up to `timeout_s`.

    Raises:
        NotToldError: it does not answer in time, or not with that.
    """
    # In a thread of its own, because the caller's may run an event loop. Only a loop can end a wait at any moment: a server
    # that sends a byte now and then would keep a blocking read waiting for ever.
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(asyncio.run, _told(url, field, timeout_s, retries)).result()
    finally:
        pool.shutdown(wait=False)


async def _told(url: str, field: str, timeout_s: float, retries: int) -> str:
    address, ends = url.rstrip("/") + "/info", monotonic() + timeout_s
    last: Exception | None = None
    try:
        async with asyncio.timeout(timeout_s), httpx2.AsyncClient(timeout=None) as client:
            for attempt in count(1):
                passing, asked_s = False, 0.0
                try:
                    reply = await ask(client, "GET", address, most=_MOST_BYTES)
                    if reply.status != 200:
                        passing, asked_s = reply.status in PASSING, retry_after_s(reply.headers)
                        raise UnavailableError(reply.described())
                    value = reply.json()[field]
                    if not isinstance(value, str):
                        raise TypeError(f"{field} is {value!r:.80}")
                    return value
                except httpx2.TransportError as error:
                    last, passing = error, not isinstance(error, httpx2.UnsupportedProtocol)
                except (RetrievalError, ValueError, KeyError, TypeError) as error:
                    last = error
                pause_s = wait_s(attempt, asked_s)
                if not passing or attempt > retries or monotonic() + pause_s >= ends:
                    break
                await asyncio.sleep(pause_s)
    except TimeoutError:
        last = last or TimeoutError(f"no answer within {timeout_s:g} s")
    raise NotToldError(f"{address} does not tell its {field} ({last!r:.300})") from last


def wait_s(attempt: int, asked_s: float = 0.0) -> float:
    """Seconds before a try: never sooner than the server asks, and not all callers at the same moment.

    Args:
        attempt: number of the try, from 1 for the second request.
        asked_s: what the server asked for, see `retry_after_s`.
    """
    backoff = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(attempt, 16)) * random.uniform(0.5, 1)  # noqa: S311
    return asked_s * random.uniform(1, 1.25) + backoff  # noqa: S311


def retry_after_s(headers: httpx2.Headers) -> float:
    """Seconds that the server asks to wait; 0 if it does not say, or says it as a date."""
    try:
        return max(0.0, float(headers.get("Retry-After", 0)))
    except ValueError:
        return 0.0
