"""A counted number of places in an engine, handed out in order of arrival."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

from verifier.engines.base import EngineError


class Places:
    """Places for callers on any thread and in any event loop. A group gets all of its places at once, and only in its turn."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._lock = threading.Lock()

    @asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        """Hold `count` places, after waiting for them if need be.

        Raises:
            EngineError: there are not that many at all.
        """
        if not 1 <= count <= self.count:
            raise EngineError(f"cannot open {count} sequences at once: max_sequences is {self.count}")
        granted: Future[None] = Future()
        with self._lock:
            self._waiting.append((count, granted))
        self._grant()
        try:
            await asyncio.wrap_future(granted)
        except asyncio.CancelledError:
            # Either it can still be cancelled, or the places came at the very moment the caller left.
            if not granted.cancel() and not granted.cancelled():
                self._give_back(count)
            raise
        finally:
            self._grant()  # a caller who left may have been the one that the others waited for
        try:
            yield
        finally:
            self._give_back(count)

    def _give_back(self, count: int) -> None:
        with self._lock:
            self._free += count
        self._grant()

    def _grant(self) -> None:
        """Hand out what is free to whoever is first in line."""
        with self._lock:
            while self._waiting:
                count, granted = self._waiting[0]
                if granted.cancelled():
                    self._waiting.popleft()
                    continue
                if count > self._free:
                    return
                self._waiting.popleft()
                if not granted.set_running_or_notify_cancel():  # cancelled in between
                    continue
                self._free -= count
                granted.set_result(None)
