"""The audit log: what was judged, for whom, by what, on which evidence. docs/security.md says what it keeps and for how long."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from serve.audit_schemas import AuditedJudgment, Judged, JudgmentPage
from serve.audit_store import AuditStore, Wanted
from serve.errors import ServiceError
from verifier.types import Judgment

logger = logging.getLogger(__name__)
T = TypeVar("T")

FOLDER = "audit"
_RETRY_AFTER_S = 30
_QUIET_S = 60.0  # between two reports of trouble
_TROUBLE = (OSError, sqlite3.Error)  # of the disk; a TimeoutError is an OSError
_PATIENCE_S = 10.0  # with a disk that does not answer
_LAST_WORD_S = 0.2  # for what is given at its deadline: it is to be written down, too
_PROBE_S = 2.0  # for a look at whether the log can be written
_STANDS_S = 5.0  # how long the answer to that is good for

_Waiting = tuple[Sequence[Judged], "asyncio.Future[list[str]]"]


@dataclass(slots=True)
class AuditStats:
    """Judgments since the service started."""

    written: int = 0
    failed: int = 0  # could not be written


class AuditLog:
    """Used on the event loop; the disk is waited for in one thread, which writes all that arrived meanwhile in one go."""

    def __init__(self, store: AuditStore, *, refuse: bool) -> None:
        """Take over a store.

        Args:
            store: where judgments are written.
            refuse: give no judgment that cannot be written down, rather than give it all the same.
        """
        self._store = store
        self._refuse = refuse
        self.stats = AuditStats()
        self._thread = ThreadPoolExecutor(1, "audit")
        self._arrived: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._reported = float("-inf")
        self._writable_until = float("-inf")  # on the monotonic clock; asked again behind it

    async def record(self, judged: Sequence[Judged], *, left_s: float = _PATIENCE_S) -> list[Judgment]:
        """Write judgments down, and return them with their ids in the log; without, where they could not be written.

        They are the system's when this returns: a killed process loses none, a power cut perhaps the last seconds.

        Args:
            judged: what is to be written.
            left_s: seconds until they are to be given. A disk that does not answer by then cannot be written.

        Raises:
            ServiceError: 503 with Retry-After, where they cannot be written and are to be refused then.
        """
        done: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._arrived.append((judged, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_arrived())
        try:
            async with asyncio.timeout(min(_PATIENCE_S, max(left_s, _LAST_WORD_S))):
                ids = await done
        except _TROUBLE as error:
            self._arrived = [waiting for waiting in self._arrived if waiting[1] is not done]
            self._writable_until = float("-inf")
            self.stats.failed += len(judged)
            self._report(error)
            if self._refuse:
                raise _unwritable() from error
            return [item.judgment for item in judged]
        self._writable_until = time.monotonic() + _STANDS_S
        self.stats.written += len(judged)
        return [item.judgment.model_copy(update={"judgment_id": id}) for item, id in zip(judged, ids, strict=True)]

    async def check(self) -> None:
        """Return if judgments can be given: they can be written down, or are given all the same.

        Raises:
            ServiceError: 503 with Retry-After.
        """
        if not self._refuse or time.monotonic() < self._writable_until:
            return
        try:
            async with asyncio.timeout(_PROBE_S):
                await self._in_thread(self._store.check)
        except _TROUBLE as error:
            self._report(error)
            raise _unwritable() from error
        self._writable_until = time.monotonic() + _STANDS_S

    async def find(self, id: str) -> AuditedJudgment | None:
        """The judgment with this id and its evidence, or None.

        Raises:
            OSError: the files cannot be read.
        """
        return await self._in_thread(lambda: self._store.find(id))

    async def page(self, wanted: Wanted, *, before: str | None = None, limit: int = 50) -> JudgmentPage:
        """Judgments, newest first.

        Args:
            wanted: which.
            before: only those older than the one with this id.
            limit: the most to return. There may be fewer, even none, and a `next` all the same: the lines that one call reads
                are bounded.

        Raises:
            OSError: the files cannot be read.
        """
        return await asyncio.to_thread(self._store.page, wanted, before, limit)

    async def tidy(self) -> None:
        """Delete what is older than the retention setting; to be called now and then."""
        try:
            await self._in_thread(self._store.tidy)
        except _TROUBLE as error:
            self._report(error)

    async def aclose(self) -> None:
        """Write what is waiting and close the files."""
        if self._writing is not None:
            await self._writing
        await self._in_thread(self._store.close)
        self._thread.shutdown()

    async def _write_arrived(self) -> None:
        while self._arrived:
            batch, self._arrived = self._arrived, []
            await self._write_batch(batch)

    async def _write_batch(self, batch: list[_Waiting]) -> None:
        """Write all of it in one go, and tell each of those who wait."""
        everything = [item for judged, _ in batch for item in judged]
        try:
            ids = iter(await self._in_thread(lambda: self._store.write(everything)))
        except Exception as error:  # noqa: BLE001 - nothing is swallowed: whoever waits is told
            if len(batch) > 1 and not isinstance(error, _TROUBLE):  # something about one of them: it fails alone
                for one in batch:
                    await self._write_batch([one])
                return
            for _, done in batch:
                if not done.done():  # else its client left
                    done.set_exception(error)
            return
        for judged, done in batch:
            given = [next(ids) for _ in judged]
            if not done.done():
                done.set_result(given)

    async def _in_thread(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, action)

    def _report(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._reported >= _QUIET_S:
            self._reported = now
            what = str(error) or "the disk does not answer"
            logger.error(
                "the audit log has trouble (%s); %d judgments were not written so far", what, self.stats.failed
            )


def _unwritable() -> ServiceError:
    detail = "judgments cannot be written down at the moment, and are not given without"
    headers = {"Retry-After": str(_RETRY_AFTER_S)}
    return ServiceError(503, "audit-unavailable", "The audit log cannot be written", detail, headers)
