"""One service, its deadlines and the number of requests in flight: what every call of a client shares."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import isfinite
from time import monotonic
from typing import Any, Self

from medverify.address import key_of, url_of
from medverify.batches import BatchSize
from retrieval.answers import Answer, Lines
from verifier.service import JudgingServiceAtUrl, OutOfTimeError, RefusedError, WrongAnswerError

_MOST_BYTES, _ITEM_BYTES = 16 * 2**20, 8 * 2**20  # of an answer, and for each of its items
SHORT_S = 60.0  # for what asks nothing of the judge


class Calls:
    """Sends requests to one service. Use it from one event loop at a time; calls may overlap."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        deadline_s: float = 600.0,
        retries: int = 4,
        concurrency: int = 16,
        batch: int = 8,
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: of the service, such as http://localhost:8080; else the environment variable MEDVERIFY_URL.
            api_key: of the service, if it wants one; else MEDVERIFY_API_KEY.
            deadline_s: seconds for a call that names none itself.
            retries: tries after the first on lost connections, 502 and 504.
            concurrency: requests in flight at once, over all calls of this client together.
            batch: cases in a request, at most. Fewer are sent to a service that takes fewer.

        Raises:
            ValueError: no URL is given, or it is none; `concurrency` or `batch` is below 1; `deadline_s` is no number of seconds.
        """
        if not isfinite(deadline_s):
            raise ValueError(f"deadline_s is {deadline_s}; expected a number of seconds")
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; expected at least 1")
        self._service = JudgingServiceAtUrl(url_of(url), api_key=key_of(api_key), retries=retries)
        self._deadline_s, self._concurrency, self._batch = deadline_s, concurrency, BatchSize(batch)
        self._places: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._service.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. May be called more than once; the next call opens others."""
        await self._service.aclose()

    async def _judging(self, path: str, body: Mapping[str, Any], ends: float, items: int = 1) -> Answer:
        most = _MOST_BYTES + items * _ITEM_BYTES
        return await self._call("POST", path, ends, body=body, most=most, tell_deadline=True)

    async def _call(
        self,
        method: str,
        path: str,
        ends: float,
        *,
        body: Mapping[str, Any] | Lines | None = None,
        most: int = _MOST_BYTES,
        tell_deadline: bool = False,
        repeatable: bool = True,
    ) -> Answer:
        async with self._place(ends):
            return await self._service.call(
                method,
                path,
                deadline_s=max(ends - monotonic(), 0.001),
                most=most,
                body=body,
                tell_deadline=tell_deadline,
                repeatable=repeatable,
            )

    @asynccontextmanager
    async def _place(self, ends: float) -> AsyncIterator[None]:
        """One of the requests that may be in flight; an OutOfTimeError if none is free in time."""
        loop = asyncio.get_running_loop()
        if self._places is None or self._places[0] is not loop:
            self._places = loop, asyncio.Semaphore(self._concurrency)
        places = self._places[1]
        try:
            async with asyncio.timeout(max(ends - monotonic(), 0)):
                await places.acquire()
        except TimeoutError as error:
            raise OutOfTimeError(f"{self.url}: {self._concurrency} requests were in flight all the time") from error
        try:
            yield
        finally:
            places.release()

    def _ends(self, deadline_s: float | None) -> float:
        """When a call is over, on the monotonic clock; a RefusedError for a deadline that no service could be told."""
        if deadline_s is not None and not isfinite(deadline_s):
            raise RefusedError(f"deadline_s is {deadline_s}; expected a number of seconds: nothing was sent")
        return monotonic() + (self._deadline_s if deadline_s is None else deadline_s)

    def _soon(self) -> float:
        return self._ends(min(SHORT_S, self._deadline_s))

    def _expect(self, found: Any, sent: Any, what: str) -> None:
        if found != sent:
            raise WrongAnswerError(f"{self.url}: the {what} are not of what was sent: {found!r:.80}, not {sent!r:.80}")


def given(**options: Any) -> dict[str, Any]:
    """Options that have a value; the service has its own for the others."""
    return {name: value for name, value in options.items() if value is not None}
