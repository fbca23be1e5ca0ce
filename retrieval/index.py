"""Exact inner-product search over float32 vectors.

FAISS finds candidates; their scores are then computed again in float64. FAISS's own float32 scores depend, in the last
bits, on how many queries share a call and on where a vector lies in memory, and among equal scores it prefers the
higher row. Here a result depends on the query and on the vectors alone: scores are the float64 inner products rounded
to float32, ordered by score descending, then row ascending, also where the cut at k goes through equal scores.
"""

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from retrieval.faiss_loader import load_faiss
from retrieval.passage import BuildError, IndexCorruptError, QueryError, VectorError

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]

# Candidates beyond k in the first pass: so many near-ties at the cut are settled without a second one.
_EXTRA = 32
# Rows worked on at once, so that scratch memory stays small whatever the index holds.
_BLOCK = 4096
_UNIT_ROUNDOFF = 2.0**-24  # float32


class FlatIndex:
    """All vectors in memory, every one compared with every query. Not thread-safe on a GPU; use it from one thread."""

    def __init__(self, index: Any) -> None:
        """Wrap a filled faiss.IndexFlatIP; use `build` or `load`, which check what it holds."""
        self._faiss = load_faiss()
        self._index = index
        # A view into FAISS's own memory, valid as long as `index` lives and is not added to.
        flat = self._faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d)
        self._vectors: Vectors = flat.reshape(index.ntotal, index.d)
        self._longest = _longest_row(self._vectors)

    @property
    def rows(self) -> int:
        """Number of vectors."""
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._index.d)

    @classmethod
    def build(cls, vectors: Vectors) -> Self:
        """Index float32 [n, d], copied; row i of the index is row i of `vectors`.

        Raises:
            BuildError: no vectors.
            VectorError: not float32 [n, d], or NaN or infinity among them.
        """
        _check_shape(vectors)
        if len(vectors) == 0:
            raise BuildError("there are no vectors to index")
        index = load_faiss().IndexFlatIP(vectors.shape[1])
        index.add(np.ascontiguousarray(vectors))
        built = cls(index)
        if not np.isfinite(built._longest):
            raise VectorError("vectors to be indexed hold NaN or infinity")
        return built

    def save(self, path: Path) -> None:
        """Write the index; the same vectors give the same bytes."""
        self._faiss.write_index(self._index, str(path))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an index into memory.

        Raises:
            IndexCorruptError: missing, truncated, of another type, or with NaN or infinity among its vectors.
        """
        faiss = load_faiss()
        try:
            index = faiss.read_index(str(path))
        except RuntimeError as error:
            raise IndexCorruptError(f"{path}: not a readable FAISS index: {error}") from error
        if not isinstance(index, faiss.IndexFlatIP) or index.ntotal == 0:
            raise IndexCorruptError(f"{path}: expected a filled IndexFlatIP, found {type(index).__name__}")
        loaded = cls(index)
        if not np.isfinite(loaded._longest):
            raise IndexCorruptError(f"{path}: holds NaN or infinity; rebuild the index")
        return loaded

    def search(self, vectors: Vectors, k: int) -> tuple[Vectors, Rows]:
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
        """
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        self._check_queries(vectors)
        k = min(k, self.rows)
        scores = np.empty((len(vectors), k), dtype=np.float32)
        rows = np.empty((len(vectors), k), dtype=np.int64)
        if len(vectors) == 0:
            return scores, rows
        fetched = min(self.rows, k + _EXTRA)
        rough, candidates = self._index.search(np.ascontiguousarray(vectors), fetched)
        if (candidates < 0).any():
            raise IndexCorruptError("FAISS returned a row that does not exist; rebuild the index")
        for number, query in enumerate(vectors):
            lowest = float(rough[number, k - 1]) - self._slack(query)
            chosen = candidates[number]
            if fetched < self.rows and rough[number, -1] >= lowest:
                chosen = self._all_above(query, lowest)
            scores[number], rows[number] = self._rank(query, chosen, k)
        return scores, rows

    def _check_queries(self, vectors: Vectors) -> None:
        _check_shape(vectors)
        if vectors.shape[1] != self.dim:
            raise VectorError(f"query vectors have {vectors.shape[1]} dimensions, the index has {self.dim}")
        if not np.isfinite(vectors).all():
            raise VectorError(f"query {int(np.argmin(np.isfinite(vectors).all(axis=1)))} has NaN or infinity")
        if len(vectors) and _longest_row(vectors) * self._longest > float(np.finfo(np.float32).max) / 4:
            raise VectorError("query vectors are so long that inner products overflow float32")

    def _slack(self, query: Vectors) -> float:
        """How far below FAISS's k-th score a row of the true top k can have been put by FAISS.

        A float32 inner product of d terms, summed in any order, is off by less than about d * 2^-24 * |q| * |x|; that
        counts twice, once for the k-th score and once for the row. The other factor of two covers what the estimate
        leaves out: second-order terms and the rounding of results to float32.
        """
        length = float(np.linalg.norm(query.astype(np.float64)))
        return 4 * self.dim * _UNIT_ROUNDOFF * length * self._longest + float(np.finfo(np.float32).tiny)

    def _all_above(self, query: Vectors, lowest: float) -> Rows:
        """Every row that FAISS scores above `lowest`, in any order: int64 [m]."""
        _, _, rows = self._index.range_search(query[np.newaxis], lowest)
        return rows  # type: ignore[no-any-return]

    def _rank(self, query: Vectors, candidates: Rows, k: int) -> tuple[Vectors, Rows]:
        """Score the candidates anew and return the best k: float32 [k], int64 [k]."""
        wide = query.astype(np.float64)
        exact = np.empty(len(candidates), dtype=np.float32)
        for start in range(0, len(candidates), _BLOCK):
            block = self._vectors[candidates[start : start + _BLOCK]]
            # Not `@`: numpy sums each row by itself, in an order that does not depend on its neighbours.
            exact[start : start + _BLOCK] = (block * wide).sum(axis=1)
        best = np.lexsort((candidates, -exact))[:k]
        return exact[best], candidates[best]


def _check_shape(vectors: Vectors) -> None:
    if vectors.ndim != 2 or vectors.dtype != np.float32:
        raise VectorError(f"expected float32 [n, dim], found {vectors.dtype} {list(vectors.shape)}")


def _longest_row(vectors: Vectors) -> float:
    """The largest Euclidean length of a row; NaN or infinity if any row has one."""
    longest = 0.0
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK].astype(np.float64)
        longest = float(np.maximum(longest, np.sqrt((block * block).sum(axis=1)).max()))
    return longest
