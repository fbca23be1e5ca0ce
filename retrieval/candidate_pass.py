"""What a search back end gives: candidates with rough scores, and how far these can be off."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.exact_scores import Rows, Vectors
from retrieval.row_table import RowTable

Rough = tuple[NDArray[np.floating], Rows]  # rough scores [q, c], descending; rows of the index int64 [q, c]


class Pass(Protocol):
    """The candidate pass over consecutive rows of an index."""

    rows: int
    extra: int  # candidates beyond k that settle the usual near-ties at the cut

    @property
    def error(self) -> float:
        """How far a rough score can be from the exact one, in units of |query| times the longest row of the index."""
        ...

    def begin(self, queries: Vectors, count: int) -> Callable[[], Rough]:
        """Start to look for the `count <= rows` roughly best rows of each query; the call that is returned waits for them.

        It may find fewer than `count`. Rows left out have rough scores no better than the last. NaN or infinity in a row
        that a pass looks at is a rough score that is not finite, or an IndexCorruptError.
        """
        ...


class Backend(Protocol):
    """What runs candidate passes."""

    def hold(self, table: RowTable) -> Sequence[Pass]:
        """Make passes that cover the rows between them, in order: one in main memory, one for each GPU, which copies its rows."""
        ...


def rounding(dim: int) -> float:
    """Error of a float32 inner product of `dim` terms, in units of the two lengths.

    Summed in any order it is less than about dim * 2^-24. Tensor cores truncate, which counts twice; the other factor of two
    covers what the estimate leaves out: second-order terms and the rounding of results to float32.
    """
    return 4 * dim * 2.0**-24


def power_of_two(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """The factors that bring lengths into [1/2, 1); 1 for 0. Products with them are exact."""
    return np.ldexp(1.0, -np.frexp(lengths)[1])


def borders(rows: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of rows of nearly equal size, none of them empty."""
    cuts = [rows * number // parts for number in range(parts + 1)]
    return [(start, stop) for start, stop in pairwise(cuts) if start < stop]
