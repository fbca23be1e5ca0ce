"""How many traces are judged and how long the rest will take: a bar on a terminal, a line now and then in a log."""

import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from medverify.cli.common import err

_LOG_EVERY_S = 30


class JudgingProgress:
    """Counts traces over all files of a run. What earlier runs have judged says nothing about the speed of this one."""

    def __init__(self, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=err, disable=not err.is_terminal)
        self._task = self._bar.add_task("judging", total=total)
        self._total, self._done, self._judged = total, 0, 0
        self._started = self._logged = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def found(self, count: int) -> None:
        """So many more had been judged before."""
        self._done += count
        self._bar.update(self._task, completed=self._done)

    def judged(self, count: int) -> None:
        """So many more are judged now."""
        self._done += count
        self._judged += count
        now = time.monotonic()
        left = timedelta(seconds=round((now - self._started) * (self._total - self._done) / self._judged))
        self._bar.update(self._task, completed=self._done, description=f"judging, about {left} left")
        if not err.is_terminal and now - self._logged > _LOG_EVERY_S:
            self._logged = now
            err.print(f"judged {self._done:,} of {self._total:,} traces, about {left} left", highlight=False)
