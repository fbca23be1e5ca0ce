"""Progress of long work: a bar on a terminal, a line now and then in a log."""

import time
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from medverify.cli.common import err

if TYPE_CHECKING:
    from retrieval.progress import Progress as Encoded

_LOG_EVERY_S = 30


class EncodingProgress:
    """How many passages are encoded, and how long the rest will take."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=err, disable=not err.is_terminal)
        self._task = self._bar.add_task("reading and cleaning", total=None)
        self._logged = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def update(self, encoded: "Encoded") -> None:
        """Show where the work is."""
        left = timedelta(seconds=round(encoded.seconds_left))
        words = f"encoded {encoded.rows:,} of {encoded.total:,} passages, about {left} left"
        self._bar.update(self._task, description=words, completed=encoded.rows, total=encoded.total)
        if not err.is_terminal and time.monotonic() - self._logged > _LOG_EVERY_S:
            self._logged = time.monotonic()
            err.print(words, highlight=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class RowsProgress:
    """How much of a file of unknown length is judged, how fast, and how long the rest will take."""

    def __init__(self, unit: str) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=err, disable=not err.is_terminal)
        self._task = self._bar.add_task("judging", total=1.0)
        self._unit = unit
        self._started = self._logged = time.monotonic()
        self._first: int | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def update(self, rows: int, share: float) -> None:
        """Show where the work is: the number of the last row, and the share of the file that was read."""
        now = time.monotonic()
        if self._first is None:  # a run that goes on did not judge what was there
            self._first, self._started = rows, now
        rate = (rows - self._first) / max(now - self._started, 1e-9)
        words = f"judged {rows:,} {self._unit}, {rate:,.{0 if rate > 10 else 2}f} a second"
        self._bar.update(self._task, description=words, completed=share)
        if not err.is_terminal and now - self._logged > _LOG_EVERY_S:
            self._logged = now
            err.print(f"{words}, {share:.1%} of the file", highlight=False)

    def say(self, words: str) -> None:
        """What is done now, of which it is not known how long it takes."""
        self._bar.update(self._task, description=words)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def bytes_progress() -> Progress:
    """A bar for reading files."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=err, disable=not err.is_terminal)


def counted_progress() -> Progress:
    """A bar for pieces of work whose number is known, with the time that is left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=err, disable=not err.is_terminal)
