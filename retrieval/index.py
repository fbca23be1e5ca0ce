"""Exact inner-product search over row-range shards of vectors, which may be memory-mapped.

A back end's candidate pass finds rough scores of a few more rows than asked for. Their exact scores (`exact_scores`) decide,
once it is proven, for each query, that no other row can be among the best k: a pass states how far its rough scores can be
off. A query for which that cannot be proven, as with thousands of equal vectors at the cut, is answered by a scan that scores
every row within reach. So the result depends on the query and on the vectors alone: not on shards, batch, back end or
precision of the pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.exact_scores import Best, Rows, Scores, Stored, Vectors, exact_scores, longest_row, merge
from retrieval.passage import BackendError, BuildError, IndexCorruptError, QueryError, VectorError

# Queries worked on at once, and elements of a block of scores in a scan: scratch memory stays small whatever is asked.
_GROUP = 256
_SCAN_ELEMENTS = 2**19
_TINY = float(np.finfo(np.float32).tiny)  # what underflow can cost


class Pass(Protocol):
    """The candidate pass of one shard."""

    extra: int  # candidates beyond k that settle the usual near-ties at the cut

    @property
    def error(self) -> float:
        """How far a rough score can be from the exact one, in units of |query| times the longest row of the shard."""
        ...

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[NDArray[np.floating], Rows]]:
        """Start to look for the `count` roughly best rows of each query; the call that is returned waits for them.

        It gives rough scores [q, c] descending, and rows of the shard int64 [q, c], c <= count; rows left out have rough scores
        no better than the last.
        """
        ...


class Backend(Protocol):
    """What runs candidate passes."""

    def hold(self, vectors: Stored) -> Pass:
        """Make a pass over a shard, float32 or float16 [n, dim], C order; on a GPU this copies the shard there."""
        ...


def pick_backend(name: str, device: str) -> Backend:
    """The back end of a setting; `auto` is torch where it is installed.

    Raises:
        BackendError: no such back end or device.
        FaissInstallError: FAISS was asked for and cannot be used.
    """
    from importlib.util import find_spec

    if name not in {"auto", "faiss", "torch"}:
        raise BackendError(f"{name!r} is not a search back end; expected auto, faiss or torch")
    if name == "faiss" or (name == "auto" and find_spec("torch") is None):
        from retrieval.faiss_pass import FaissBackend

        return FaissBackend(device)
    from retrieval.torch_pass import TorchBackend

    return TorchBackend(device)


@dataclass(frozen=True)
class _Shard:
    vectors: Stored
    start: int  # its first row in the index
    candidates: Pass
    known_norm: float | None

    @cached_property
    def longest(self) -> float:
        """Length of the longest row. Reads the shard once, at the first search, unless it was given."""
        return longest_row(self.vectors) if self.known_norm is None else self.known_norm

    def slack(self, queries: Vectors, unit: float) -> NDArray[np.float64]:
        """Bound on the error of rough scores, float64 [q]; `unit` as `Pass.error`."""
        lengths: NDArray[np.float64] = np.sqrt((queries.astype(np.float64) ** 2).sum(axis=1))
        underflow: NDArray[np.float64] = (1 + lengths + self.longest) * (queries.shape[1] * _TINY)
        return lengths * (unit * self.longest) + underflow

    def best(self, queries: Vectors, k: int, rough: NDArray[np.floating], rows: Rows) -> tuple[Scores, Rows]:
        """The exact best k of the shard and their rows in the index, [q, k], from what its pass found."""
        found, everything = rows.shape[1], rows.shape[1] == len(self.vectors)
        if found >= k:
            # The k-th exact score is no lower than the k-th rough one less the slack: a row of the best k is within twice that.
            reach = rough[:, k - 1] - 2 * self.slack(queries, self.candidates.error)
            proven = np.full(len(queries), True) if everything else rough[:, -1] < reach
        else:
            reach = np.full(len(queries), -np.inf)
            proven = np.full(len(queries), False)
        best = Best(len(queries), k)
        numbers, places = np.nonzero((rough >= reach[:, np.newaxis]) & proven[:, np.newaxis])
        chosen = rows[numbers, places]
        best.add(numbers, exact_scores(queries, self.vectors, numbers, chosen), chosen)
        if not proven.all():
            rest = np.flatnonzero(~proven)
            scanned = self._scan(queries[rest], k, reach[rest])
            best.scores[rest], best.rows[rest] = scanned.scores, scanned.rows
        return best.scores, best.rows + self.start

    def _scan(self, queries: Vectors, k: int, reach: NDArray[np.float64]) -> Best:
        """Score every row that can be among the best; `reach` is known to lie below all exact scores of those."""
        best = Best(len(queries), k)
        slack = self.slack(queries, rounding(queries.shape[1]))
        floor = reach - slack
        size = max(64, min(8192, _SCAN_ELEMENTS // len(queries)))
        for start in range(0, len(self.vectors), size):
            block = self.vectors[start : start + size].astype(np.float32, copy=False)
            within = block @ queries.T >= np.maximum(floor, best.last - slack)
            rows, numbers = np.nonzero(within)
            rows += start
            best.add(numbers, exact_scores(queries, self.vectors, numbers, rows), rows)
        return best


def rounding(dim: int) -> float:
    """Error of a float32 inner product of `dim` terms, in units of the two lengths.

    Summed in any order it is less than about dim * 2^-24. Tensor cores truncate, which counts twice; the other factor of two
    covers what the estimate leaves out: second-order terms and the rounding of results to float32.
    """
    return 4 * dim * 2.0**-24


class ExactIndex:
    """All vectors, every one compared with every query. Use it from one thread at a time."""

    def __init__(
        self,
        shards: Sequence[Stored],
        backend: str | Backend = "auto",
        device: str = "auto",
        *,
        norms: Sequence[float | None] | None = None,
    ) -> None:
        """Args:
            shards: float32 or float16 [n, dim], in row order; nothing is copied or read, except onto a GPU.
            backend: auto, faiss, torch, or a back end.
            device: auto, cpu, cuda (all that are visible) or cuda:N; not used with a given back end.
            norms: length of the longest row of each shard, as found when they were written; where there is none, the first
                search reads the shard.

        Raises:
            BuildError: no vectors.
            VectorError: of the wrong type or shape.
            BackendError: the back end or the device is not there, or has too little memory.
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
        self.rows = sum(map(len, shards))
        chosen = pick_backend(backend, device) if isinstance(backend, str) else backend
        self._shards, start = list[_Shard](), 0
        for number, shard in enumerate(shards):
            plain: Stored = np.asarray(shard)  # type: ignore[assignment]  # memmap's own class makes every slice slow
            self._shards.append(_Shard(plain, start, chosen.hold(plain), norms[number] if norms else None))
            start += len(shard)

    def search(self, vectors: Vectors, k: int) -> tuple[Scores, Rows]:
        """Find the `k' = min(k, rows)` best rows for each query.

        Args:
            vectors: float32 [q, dim], finite.
            k: at least 1.

        Returns:
            scores: float32 [q, k'], descending.
            rows: int64 [q, k'], ascending among equal scores; every one is a row of the index.

        Raises:
            QueryError: k below 1.
            VectorError: wrong shape or type, NaN, infinity, or so large that an inner product could overflow.
            IndexCorruptError: the index holds NaN or infinity.
        """
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        check_queries(vectors, self.dim)
        self._check_lengths(vectors)
        k = min(k, self.rows)
        scores = np.empty((len(vectors), k), dtype=np.float32)
        rows = np.empty((len(vectors), k), dtype=np.int64)
        for start in range(0, len(vectors), _GROUP):
            group = slice(start, start + _GROUP)
            scores[group], rows[group] = self._search(np.ascontiguousarray(vectors[group]), k)
        return scores, rows

    def _search(self, queries: Vectors, k: int) -> tuple[Scores, Rows]:
        wanted = [min(k, len(shard.vectors)) for shard in self._shards]
        running = [
            shard.candidates.begin(queries, min(count + shard.candidates.extra, len(shard.vectors)))
            for shard, count in zip(self._shards, wanted, strict=True)
        ]
        parts = [
            shard.best(queries, count, *wait())
            for shard, count, wait in zip(self._shards, wanted, running, strict=True)
        ]
        return merge(parts, k)

    def _check_lengths(self, vectors: Vectors) -> None:
        norms = [shard.longest for shard in self._shards]
        if not np.isfinite(norms).all():
            raise IndexCorruptError("the index holds NaN or infinity; rebuild it")
        if len(vectors) and longest_row(vectors) * max(norms) > float(np.finfo(np.float32).max) / 4:
            raise VectorError("query vectors are so long that inner products overflow float32")


def check_queries(vectors: Vectors, dim: int) -> None:
    """Refuse what cannot be searched for in an index of `dim` dimensions.

    Raises:
        VectorError: not float32 [q, dim], or NaN or infinity.
    """
    if vectors.ndim != 2 or vectors.dtype != np.float32:
        raise VectorError(f"expected float32 [n, dim], found {vectors.dtype} {list(vectors.shape)}")
    if vectors.shape[1] != dim:
        raise VectorError(f"query vectors have {vectors.shape[1]} dimensions, the index has {dim}")
    if not np.isfinite(vectors).all():
        raise VectorError(f"query {int(np.argmin(np.isfinite(vectors).all(axis=1)))} has NaN or infinity")
