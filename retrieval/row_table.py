"""The rows of an index, in the shards in which they lie: many files are searched as if they were one."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from retrieval.exact_scores import Rows, Stored, longest_row
from retrieval.passage import BuildError, VectorError


class RowTable:
    """Consecutive shards as one table of rows. Nothing is copied, or read before it is needed."""

    def __init__(self, shards: Sequence[Stored], norms: Sequence[float | None] | None = None) -> None:
        """Args:
            shards: float32 or float16 [n, dim], C order, in row order; they may be memory-mapped.
            norms: length of the longest row of each shard, as found when they were written.

        Raises:
            BuildError: no vectors.
            VectorError: of the wrong type or shape.
        """
        if not shards or not all(map(len, shards)):
            raise BuildError("there are no vectors to index")
        if norms is not None and len(norms) != len(shards):
            raise VectorError(f"{len(norms)} norms for {len(shards)} shards")
        for shard in shards:
            if shard.ndim != 2 or shard.dtype not in (np.float32, np.float16) or not shard.flags.c_contiguous:
                raise VectorError(f"expected float32 or float16 [n, dim], found {shard.dtype} {list(shard.shape)}")
        widths = {shard.shape[1] for shard in shards}
        if len(widths) > 1:
            raise VectorError(f"shards have vectors of {sorted(widths)} dimensions; expected one number")
        self.dim = int(widths.pop())
        self.shards: list[Stored] = [np.asarray(shard) for shard in shards]  # type: ignore[misc]  # memmap slices slowly
        self._borders = np.cumsum([0, *map(len, shards)])
        self._norms = norms or [None] * len(shards)

    def __len__(self) -> int:
        return int(self._borders[-1])

    @cached_property
    def longest(self) -> float:
        """Length of the longest row; NaN or infinity if a row has one. Reads the shards whose norm was not given."""
        pairs = zip(self.shards, self._norms, strict=True)
        return float(np.max([longest_row(shard) if norm is None else norm for shard, norm in pairs]))

    def spans(self, start: int, stop: int, limit: int) -> Iterator[tuple[int, slice]]:
        """The rows from `start` up to and without `stop`, piece by piece: a shard's number, and at most `limit` rows of it."""
        number = int(np.searchsorted(self._borders, start, side="right")) - 1
        while start < stop:
            first, last = self._borders[number : number + 2].tolist()
            for at in range(start, min(stop, last), limit):
                yield number, slice(at - first, min(at + limit, stop, last) - first)
            start, number = last, number + 1

    def wide(self, rows: Rows) -> NDArray[np.float64]:
        """Rows, in any order, as float64 [n, dim]."""
        if len(self.shards) == 1:
            return self.shards[0][rows].astype(np.float64)
        taken = np.empty((len(rows), self.dim))
        order = np.argsort(rows, kind="stable")
        cuts = np.searchsorted(rows[order], self._borders)
        for number in np.flatnonzero(np.diff(cuts)):
            places = order[cuts[number] : cuts[number + 1]]
            taken[places] = self.shards[number][rows[places] - self._borders[number]]
        return taken
