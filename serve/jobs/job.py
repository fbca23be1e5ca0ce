"""A job in memory: which of its cases are to be judged, being judged, judged."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from serve.jobs.files import JobFiles
from serve.jobs.schemas import JobState
from verifier.types import Judgment, Status

_WAITING, _TAKEN, _DONE = range(3)


class Job:
    """Used on the event loop only; what waits for the disk is in `files`."""

    def __init__(self, files: JobFiles, results: Mapping[int, Status]) -> None:
        self.files = files
        self.spec = files.spec
        self.counts = Counter(results.values())
        self.cancelled = files.cancelled
        self.gone = False  # deleted
        self.waiting_for: str | None = None
        self.unwritable = False  # the last result could not be written: no new case is begun before it is
        self.judging = dict[int, asyncio.Task[Judgment]]()
        self._marks = bytearray(self.spec.total)
        for index in results:
            self._marks[index] = _DONE
        self._next = 0  # no case before it waits
        self._begun: float | None = None  # on the monotonic clock, in this process
        self._done_here = 0
        self._ended = files.changed if self.over else None  # seconds since 1970

    @property
    def done(self) -> int:
        """Cases that have a result."""
        return self.counts.total()

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.cancelled or self.done == self.spec.total

    def take(self) -> int | None:
        """The position of a case to judge, or None if there is none at the moment."""
        if self.over or self.gone or self.unwritable:
            return None
        index = self._marks.find(_WAITING, self._next)
        if index < 0:
            return None
        self._marks[index] = _TAKEN
        self._next = index + 1
        self._begun = self._begun or time.monotonic()
        return index

    def give_back(self, index: int) -> None:
        """A case that was taken waits again."""
        self._marks[index] = _WAITING
        self._next = min(self._next, index)

    def finish(self, index: int, status: Status) -> None:
        """The result of a case is on the disk."""
        self._marks[index] = _DONE
        self.counts[status] += 1
        self._done_here += 1
        self.waiting_for = None
        if self.done == self.spec.total:
            self._ended = time.time()

    def reopen(self, dropped: Mapping[int, Status]) -> None:
        """Results were taken out: their cases wait again, and so does what a cancelled job had left."""
        for index in dropped:
            self.give_back(index)
        self.counts -= Counter(dropped.values())
        self.cancelled = False
        self._begun, self._done_here = None, 0
        if not self.over:
            self._ended = None

    def cancel(self) -> None:
        """Stop what is being judged."""
        self.cancelled = True
        self.waiting_for = None
        self._ended = self._ended or time.time()
        for task in self.judging.values():
            task.cancel()

    def expired(self, retention_days: float) -> bool:
        """Whether it ended too long ago to be kept; 0 days are forever."""
        return bool(retention_days and self._ended and self._ended + retention_days * 86_400 < time.time())

    def state(self, retention_days: float) -> JobState:
        """What its caller is told."""
        begun = self._begun is not None or self.done
        kept_until = self._ended + retention_days * 86_400 if self._ended and retention_days else None
        return JobState(
            id=self.spec.id,
            status="cancelled" if self.cancelled else "done" if self.over else "running" if begun else "queued",
            total=self.spec.total,
            done=self.done,
            failed=self.done - self.counts[Status.SCORED],
            counts={status: count for status, count in sorted(self.counts.items()) if count},
            waiting_for=None if self.over else self.waiting_for,
            seconds_left=self._seconds_left(),
            seed=self.spec.seed,
            judge_id=self.spec.judge_id,
            created=_moment(self.spec.created),
            ended=_moment(self._ended) if self._ended else None,
            deleted_after=_moment(kept_until) if kept_until else None,
        )

    def _seconds_left(self) -> float | None:
        if self.over:
            return 0.0
        if self._begun is None or not self._done_here:
            return None
        pace = (time.monotonic() - self._begun) / self._done_here
        return pace * (self.spec.total - self.done)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
