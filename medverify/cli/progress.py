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


def bytes_progress() -> Progress:
    """A bar for reading files."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=err, disable=not err.is_terminal)


def counted() -> Progress:
    """A bar for pieces of work whose number is known, with the time that is left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=err, disable=not err.is_terminal)
