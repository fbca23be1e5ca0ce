"""One way of finding rows for queries: what a retrieval profile is to the search engine.

`dense`, `bm25`, `hybrid` and `rerank` are rankers. A ranker works on batches in one thread and knows rows only; the search engine
owns the queue, the passages' texts and the callers.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.encoder import Encoder, Vectors
from retrieval.passage import IndexMismatchError, QueryError, UnavailableError
from retrieval.stats import Histogram, Staged


class Ranking(NamedTuple):
    """The answer to one query: rows best first, equal scores by ascending row."""

    rows: NDArray[np.int64]  # [m]
    scores: NDArray[np.float32]  # [m], descending


class MissingRowsError(UnavailableError):
    """Some rows of the index could not be searched. Carries what the others gave, so that no retry is needed to see it."""

    def __init__(
        self,
        message: str,
        missing: Sequence[tuple[int, int]],
        scores: NDArray[np.float32],
        rows: NDArray[np.int64],
    ) -> None:
        """Args:
        missing: ranges of rows, ascending: `start` up to and without `stop`.
        scores: float32 [q, k'], as from a search of the other rows; k' may be 0.
        rows: int64 [q, k'].
        """
        super().__init__(message)
        self.missing = tuple(missing)
        self.rankings = [Ranking(*pair) for pair in zip(rows, scores, strict=True)]


class Ranker(Protocol):
    """Finds rows for queries. Used by one thread at a time."""

    @property
    def profile(self) -> str:
        """Name of the profile: dense, bm25, hybrid, rerank …"""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 over everything that decides the ranking: the index's manifest and the profile's own parts."""
        ...

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        """The best `min(k, rows)` rows of each query, or fewer where the profile finds no more.

        What is found for one query does not depend on the other queries of the batch beyond the last bits of their vectors, and
        its first j rows are what `k = j` gives: callers with different k share a batch.

        Raises:
            MissingRowsError: not all rows could be searched.
        """
        ...


class VectorIndex(Protocol):
    """What finds the nearest vectors: the exact shards, or a compressed copy of them."""

    @property
    def rows(self) -> int: ...

    @property
    def dim(self) -> int: ...

    def search(self, vectors: Vectors, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores float32 [q, k'], descending, and rows int64 [q, k'], k' = min(k, rows); ties by ascending row."""
        ...


class DenseRanker:
    """The nearest vectors: encode, then search.

    With an approximate index, what is found depends on how much is asked for. It is then always asked for `depth` rows, so that
    the best three are the same whether three or ten were asked for; at most `depth` rows are found.
    """

    profile = "dense"

    def __init__(self, encoder: Encoder, index: VectorIndex, digest: str, depth: int | None = None) -> None:
        """Args:
            digest: of all that decides the ranking: an exact index's manifest, a compressed one's recipe.
            depth: of an approximate index.

        Raises:
            IndexMismatchError: the encoder's vectors do not have the index's dimensions.
        """
        if encoder.spec.dim != index.dim:
            raise IndexMismatchError(f"encoder.dim: the index has {index.dim}, given was {encoder.spec.dim}")
        self.digest = digest
        self.stages = {"encode": Histogram(), "search": Histogram()}
        if isinstance(index, Staged):
            self.stages |= index.stages
        self._encoder = encoder
        self._index = index
        self._depth = depth

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        with self.stages["encode"].timed():
            vectors = self._encoder.encode_queries(queries)
        with self.stages["search"].timed():
            scores, rows = self._index.search(vectors, self._depth or k)
        return [Ranking(*pair) for pair in zip(rows[:, :k], scores[:, :k], strict=True)]
