"""How far a build is, and how long it will still take."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.manifest import RowRange

_BYTES_A_TOKEN = 5  # English text; what a passage has beyond its last token costs nothing


@dataclass(frozen=True)
class Progress:
    """Where this process is with the rows that it has to encode."""

    rows: int  # done, by this run and by earlier ones
    total: int
    seconds_left: float


class Meter:
    """Measures work by the length of texts: passages are encoded longest first, so that counting them would mislead."""

    def __init__(
        self, offsets: NDArray[np.int64], max_tokens: int, parts: Sequence[RowRange], waiting: Sequence[RowRange]
    ) -> None:
        """Args:
        offsets: int64 [rows + 1], of the text store.
        max_tokens: where passages are cut.
        parts: the ranges of this process; `waiting`: those of them that have still to be encoded.
        """
        self._offsets, self._most = offsets, max_tokens * _BYTES_A_TOKEN
        self._total = sum(part.stop - part.start for part in parts)
        self._rows = self._total - sum(part.stop - part.start for part in waiting)
        self._work_left = sum(self._work(slice(part.start, part.stop)) for part in waiting)
        self._work_done = 0
        self._started = time.monotonic()

    def add(self, rows: NDArray[np.int64]) -> None:
        """These rows have been encoded."""
        work = self._work(rows)
        self._rows += len(rows)
        self._work_done += work
        self._work_left -= work

    def progress(self) -> Progress:
        """As of now, at the average speed of this run."""
        elapsed = time.monotonic() - self._started
        return Progress(self._rows, self._total, elapsed * self._work_left / max(self._work_done, 1))

    def _work(self, rows: NDArray[np.int64] | slice) -> int:
        lengths = self._offsets[1:][rows] - self._offsets[:-1][rows]
        return int(np.minimum(lengths, self._most).sum())
