"""Many callers, one worker: what arrives while a batch is in work is the next batch.

No timer, no idle time, large batches exactly when there is much to do. Equal searches in flight are one. A search that nobody
waits for any more, because its callers left or their deadlines passed, is taken out before any work is done for it.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import Any, Generic, TypeVar

from retrieval.passage import DeadlineError, OverloadedError, RetrievalError, UnavailableError
from retrieval.stats import EngineStats

T = TypeVar("T")
Ask = tuple[str, int]  # a query and its k


@dataclass(eq=False, slots=True)
class _Request(Generic[T]):
    """One caller's searches, answered together on the caller's own event loop."""

    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[list[T]]"
    answers: list[Any]
    missing: int


@dataclass(eq=False, slots=True)
class _Search(Generic[T]):
    """One query, and the places in requests that its answer goes to."""

    ask: Ask
    since: float
    wanted: list[tuple[_Request[T], int]] = field(default_factory=list)


class SearchQueue(Generic[T]):
    """Batches searches for one worker thread. May be asked from any thread and any number of event loops."""

    def __init__(
        self,
        work: Callable[[list[Ask]], list[T]],
        *,
        max_waiting: int,
        max_batch: int,
        stats: EngineStats,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        work: answers a batch. Called by one thread; an error fails the queries that cause it and no others.
        max_waiting: searches in the queue; beyond it new ones are refused.
        max_batch: queries worked on together; more would only make the first of them wait.
        between: called by the worker thread after each batch.
        """
        self._work, self._between = work, between
        self._max_waiting, self._max_batch = max_waiting, max_batch
        self._stats = stats
        self._changed = threading.Condition()  # guards all below; held for moments only, never during work
        self._waiting: dict[Ask, _Search[T]] = {}
        self._working: dict[Ask, _Search[T]] = {}
        self._closed = False
        self._why = "the retriever was closed"
        self._seconds_per_search = 0.01  # running mean; for Retry-After
        self._worker = threading.Thread(target=self._run, name="search", daemon=True)
        self._worker.start()

    @property
    def waiting(self) -> int:
        """Searches that no batch has taken yet."""
        return len(self._waiting)

    async def ask(self, queries: Sequence[str], k: int, deadline_s: float | None = None) -> list[T]:
        """Answer the queries, in their order. All succeed or all fail.

        Raises:
            OverloadedError: they do not fit into the queue; none of them was taken.
            DeadlineError: `deadline_s` passed.
            UnavailableError: the queue was closed.
            RetrievalError: the work failed.
        """
        loop = asyncio.get_running_loop()
        request = _Request[T](loop, loop.create_future(), [None] * len(queries), len(queries))
        searches = self._admit(request, queries, k)
        timer = None if deadline_s is None else loop.call_later(deadline_s, self._expire, request, deadline_s)
        try:
            return await request.future
        except BaseException:
            self._leave(request, searches)
            raise
        finally:
            if timer:
                timer.cancel()

    def close(self) -> None:
        """Fail what waits, let the batch in work finish, and end the worker. Blocks; may be called more than once."""
        with self._changed:
            self._closed = True
            abandoned = list(self._waiting.values())
            self._waiting.clear()
            self._changed.notify_all()
        self._deliver(abandoned, error=UnavailableError(self._why))
        self._worker.join()

    def _admit(self, request: _Request[T], queries: Sequence[str], k: int) -> list[_Search[T]]:
        searches = []
        with self._changed:
            if self._closed:
                raise UnavailableError(self._why)
            flying = [self._waiting.get((query, k)) or self._working.get((query, k)) for query in queries]
            new = len({query for query, search in zip(queries, flying, strict=True) if search is None})
            if len(self._waiting) + new > self._max_waiting:
                self._stats.refused += len(queries)
                wait = max(1.0, len(self._waiting) * self._seconds_per_search)
                raise OverloadedError(
                    f"{len(self._waiting)} searches wait and {new} more exceed the limit of {self._max_waiting}; "
                    f"come back in {wait:.0f} s",
                    wait,
                )
            now = perf_counter()
            for position, query in enumerate(queries):
                search = flying[position] or self._waiting.get((query, k))
                if search is None:
                    search = self._waiting[query, k] = _Search((query, k), now)
                else:
                    self._stats.coalesced += 1
                search.wanted.append((request, position))
                searches.append(search)
            if new:
                self._changed.notify()
        return searches

    def _expire(self, request: _Request[T], deadline_s: float) -> None:
        if not request.future.done():
            with self._changed:
                self._stats.late += 1
            request.future.set_exception(DeadlineError(f"no answer within the deadline of {deadline_s:g} s"))

    def _leave(self, request: _Request[T], searches: list[_Search[T]]) -> None:
        """The caller has gone: searches that nobody else wants leave the queue, and make room at once."""
        with self._changed:
            for search in searches:
                search.wanted = [place for place in search.wanted if place[0] is not request]
                if not search.wanted and self._waiting.get(search.ask) is search:
                    del self._waiting[search.ask]
                    self._stats.abandoned += 1

    def _run(self) -> None:
        """Answer batch after batch. The worker thread; when it ends, for whatever reason, nobody is left waiting for it."""
        try:
            while batch := self._next_batch():
                started = perf_counter()
                self._answer(batch)
                elapsed = (perf_counter() - started) / len(batch)
                self._seconds_per_search += 0.1 * (elapsed - self._seconds_per_search)
                self._between()
        finally:
            with self._changed:
                if not self._closed:
                    self._why = "the search thread has died (see the log); start the process again"
                self._closed = True
                left = [*self._working.values(), *self._waiting.values()]
                self._waiting.clear()
            self._deliver(left, error=UnavailableError(self._why))

    def _next_batch(self) -> list[_Search[T]]:
        """Wait for searches and take what is there, up to the bound; empty once the queue is closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            batch = [self._waiting.pop(ask) for ask in list(islice(self._waiting, self._max_batch))]
            self._working = {search.ask: search for search in batch}
        now = perf_counter()
        for search in batch:
            self._stats.stages["queue"].observe(now - search.since)
        if batch:
            self._stats.batch_size.observe(len(batch))
        return batch

    def _answer(self, batch: list[_Search[T]]) -> None:
        """Work on a batch. If it fails, its halves are tried: one bad query fails only its own callers."""
        try:
            answers = self._work([search.ask for search in batch])
            if len(answers) != len(batch):
                raise RetrievalError(f"{len(batch)} searches were answered with {len(answers)} results")
        except BaseException as error:  # noqa: BLE001  the thread's edge: a library's panic belongs to the callers as well
            if len(batch) == 1:
                self._stats.failed += 1
                self._deliver(batch, error=error if isinstance(error, RetrievalError) else _failure(error))
            else:
                middle = len(batch) // 2
                for half in (batch[:middle], batch[middle:]):
                    if wanted := self._still_wanted(half):
                        self._answer(wanted)
        else:
            self._deliver(batch, answers)

    def _still_wanted(self, batch: list[_Search[T]]) -> list[_Search[T]]:
        """Without the searches whose callers have all left; these are taken out, so that nobody joins them any more."""
        with self._changed:
            for search in batch:
                if not search.wanted:
                    self._working.pop(search.ask, None)
                    self._stats.abandoned += 1
            return [search for search in batch if search.wanted]

    def _deliver(
        self, batch: list[_Search[T]], answers: list[T] | None = None, *, error: Exception | None = None
    ) -> None:
        """Hand out answers, or the one error: one wake-up for each event loop, not one for each caller."""
        ready = defaultdict[asyncio.AbstractEventLoop, list[_Request[T]]](list)
        with self._changed:
            for number, search in enumerate(batch):
                self._working.pop(search.ask, None)
                for request, position in search.wanted:
                    if answers is not None:
                        request.answers[position] = answers[number]
                        request.missing -= 1
                    if error is not None or request.missing == 0:
                        ready[request.loop].append(request)
        for loop, requests in ready.items():
            with suppress(RuntimeError):  # the loop was closed, and its callers with it
                loop.call_soon_threadsafe(_settle, requests, error)


def _settle(requests: list[_Request[T]], error: Exception | None) -> None:
    """Runs on the requests' event loop."""
    for request in requests:
        if request.future.done():  # cancelled, too late, or failed by another of its searches
            continue
        if error is not None:
            request.future.set_exception(_own(error))
        else:
            request.future.set_result(request.answers)


def _own(error: Exception) -> Exception:
    """A copy for one caller: whoever raises an exception writes into it, so no two tasks may raise the same one."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(vars(error))
    own.__cause__ = error.__cause__
    return own.with_traceback(error.__traceback__)


def _failure(error: BaseException) -> RetrievalError:
    failure = RetrievalError(f"the search failed: {error!r}")
    failure.__cause__ = error
    return failure
