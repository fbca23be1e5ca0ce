"""What our clients of HTTP services share: how long they wait before a try, and whose connections are used."""

import asyncio
import random
from collections.abc import Mapping

import httpx2

PASSING = frozenset({500, 502, 503, 504})  # what may be another status soon
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 10.0
_CONNECTIONS = 256


class LoopClient:
    """The client of the running event loop; connections cannot move from one loop to another."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """Nothing is opened yet.

        Args:
            url: what requests are relative to.
            headers: sent with each of them.

        Raises:
            ValueError: the URL is none.
        """
        try:
            address = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise ValueError(f"{url!r} is no URL: {error}") from error
        if address.scheme not in ("http", "https") or not address.host:
            raise ValueError(f"{url!r} is no URL; expected http://HOST:PORT")
        self._url, self._headers = url, dict(headers or {})
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> httpx2.AsyncClient:
        """The client; it has no time limits of its own, for those are its caller's, over all tries together."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            limits = httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
            self._client = httpx2.AsyncClient(base_url=self._url, headers=self._headers, timeout=None, limits=limits)
            self._loop = loop
        return self._client

    async def aclose(self) -> None:
        """Close the connections. May be called more than once."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None


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
