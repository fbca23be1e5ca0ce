"""Exact inner-product search over row-range shards of vectors, which may be memory-mapped.

A back end's candidate pass finds rough scores of a few more rows than asked for. Their exact scores (`exact_scores`) decide,
once it is proven, for each query, that no other row can be among the best k: a pass states how far its rough scores can be
off. Where that cannot be proven the pass looks for more rows; where it still cannot, as with thousands of equal vectors at the
cut, a scan scores every row within reach. So the result depends on the query and on the vectors alone: not on shards, batch,
back end or precision of the pass.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retrieval.candidate_pass import Backend, rounding
from retrieval.exact_scores import Best, Rows, Scores, Stored, Vectors, exact_scores, longest_row
from retrieval.passage import BackendError, IndexCorruptError, QueryError, VectorError
from retrieval.row_table import RowTable
from retrieval.stats import Histogram

# Queries worked on at once, and elements of a block of scores in a scan: scratch memory stays small whatever is asked.
_GROUP = 256
_SCAN_ELEMENTS = 2**19
_WIDER = 8  # times as many candidates are looked for where the first were too few
_TINY = float(np.finfo(np.float32).tiny)  # what underflow can cost
_CORRUPT = (
    "the index holds NaN, infinity, or a vector longer than its manifest says; run `medverify index verify` on it to see "
    "which file is damaged, and rebuild it"
)


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


class _Near(NamedTuple):
    """What the passes found for some queries."""

    rough: NDArray[np.floating]  # [q, c]
    rows: Rows  # [q, c]
    reach: NDArray[np.float64]  # [q]: rows of the best k have rough scores no lower
    proven: NDArray[np.bool_]  # [q]: all of the best k are among `rows`


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
            IndexCorruptError: NaN or infinity was found while rows were copied onto a GPU.
        """
        self._table = RowTable(shards, norms)
        self.dim, self.rows = self._table.dim, len(self._table)
        self._passes = (pick_backend(backend, device) if isinstance(backend, str) else backend).hold(self._table)
        #: Searches for which the first candidates proved too little, and what that cost.
        self.stages = {"widen": Histogram(), "scan": Histogram()}

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
            IndexCorruptError: the search came upon NaN, infinity or a vector longer than `norms` say. What lies out of its
                way is not noticed: `medverify index verify` reads every byte.
        """
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        check_queries(vectors, self.dim)
        if not np.isfinite(self._table.longest):
            raise IndexCorruptError(_CORRUPT)
        if len(vectors) and longest_row(vectors) * self._table.longest > float(np.finfo(np.float32).max) / 4:
            raise VectorError("query vectors are so long that inner products overflow float32")
        k = min(k, self.rows)
        scores = np.empty((len(vectors), k), dtype=np.float32)
        rows = np.empty((len(vectors), k), dtype=np.int64)
        for start in range(0, len(vectors), _GROUP):
            group = slice(start, start + _GROUP)
            best = self._search(np.ascontiguousarray(vectors[group]), k)
            scores[group], rows[group] = best.scores, best.rows
        return scores, rows

    def _search(self, queries: Vectors, k: int) -> Best:
        best = Best(len(queries), k)
        near = self._near(queries, k, 1)
        self._settle(queries, np.arange(len(queries)), near, best)
        left = np.flatnonzero(~near.proven)
        if len(left):
            with self.stages["widen"].timed():
                near = self._near(queries[left], k, _WIDER)
                self._settle(queries, left, near, best)
            left, reach = left[~near.proven], near.reach[~near.proven]
        if len(left):
            with self.stages["scan"].timed():
                scanned = self._scan(queries[left], k, reach)
            best.scores[left], best.rows[left] = scanned.scores, scanned.rows
        # Scores are inner products: none is greater than the two lengths allow, if the vectors are what they were.
        limit = _lengths(queries) * self._table.longest * (1 + 1e-6) + queries.shape[1] * _TINY
        if not best.whole or (np.abs(best.scores[:, 0]) > limit).any():
            raise IndexCorruptError(_CORRUPT)
        return best

    def _near(self, queries: Vectors, k: int, times: int) -> _Near:
        """Look for candidates in all passes, and for the proof that they are enough."""
        running = [each.begin(queries, min((k + each.extra) * times, each.rows)) for each in self._passes]
        parts = [wait() for wait in running]
        rough = np.concatenate([scores for scores, _ in parts], axis=1)
        rows = np.concatenate([rows for _, rows in parts], axis=1)
        if not np.isfinite(rough).all():
            raise IndexCorruptError(_CORRUPT)
        # No row that was left out has a better rough score.
        cuts = [
            scores[:, -1] for (scores, _), each in zip(parts, self._passes, strict=True) if scores.shape[1] < each.rows
        ]
        cut = np.max(cuts, axis=0) if cuts else np.full(len(queries), -np.inf)
        reach = np.full(len(queries), -np.inf)
        if rough.shape[1] >= k:
            # The k-th exact score is no lower than the k-th rough one less the slack: a row of the best k is within twice that.
            last = rough[:, k - 1] if len(parts) == 1 else -np.partition(-rough, k - 1, axis=1)[:, k - 1]
            reach = last - 2 * self._slack(queries, max(each.error for each in self._passes))
        return _Near(rough, rows, reach, cut < reach)

    def _settle(self, queries: Vectors, asked: Rows, near: _Near, best: Best) -> None:
        """Score the candidates of the queries `asked` that are proven to have all they need."""
        numbers, places = np.nonzero((near.rough >= near.reach[:, np.newaxis]) & near.proven[:, np.newaxis])
        rows, numbers = near.rows[numbers, places], asked[numbers]
        best.add(numbers, exact_scores(queries, self._table.wide, numbers, rows), rows)

    def _scan(self, queries: Vectors, k: int, reach: NDArray[np.float64]) -> Best:
        """Score every row that can be among the best; `reach` is known to lie below all exact scores of those."""
        best, start = Best(len(queries), k), 0
        slack = self._slack(queries, rounding(queries.shape[1]))
        floor = reach - slack
        size = max(64, min(8192, _SCAN_ELEMENTS // len(queries)))
        for number, span in self._table.spans(0, self.rows, size):
            block = self._table.shards[number][span].astype(np.float32, copy=False)
            rough = block @ queries.T
            if not np.isfinite(rough).all():
                raise IndexCorruptError(_CORRUPT)
            rows, numbers = np.nonzero(rough >= np.maximum(floor, best.last - slack))
            rows += start
            best.add(numbers, exact_scores(queries, self._table.wide, numbers, rows), rows)
            start += len(block)
        return best

    def _slack(self, queries: Vectors, unit: float) -> NDArray[np.float64]:
        """Bound on the error of rough scores, float64 [q]; `unit` as `Pass.error`."""
        lengths, longest = _lengths(queries), self._table.longest
        slack: NDArray[np.float64] = lengths * (unit * longest) + (1 + lengths + longest) * (queries.shape[1] * _TINY)
        return slack


def _lengths(queries: Vectors) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt((queries.astype(np.float64) ** 2).sum(axis=1))
    return lengths


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
