"""The `hybrid` profile: several rankers, fused by the ranks they give (Cormack, Clarke and Büttcher 2009)."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from retrieval.passage import QueryError
from retrieval.ranker import Ranker, Ranking
from retrieval.stats import Histogram, Staged

K = 60  # the paper's constant
DEPTH = 32  # rows that are taken of each ranker


class HybridRanker:
    """A row scores the sum of 1 / (60 + rank) over the rankers that put it among their first `depth`.

    The depth does not depend on k, so that the best three are the same whether three or ten were asked for. Hence at most
    `depth` times the number of rankers are found.
    """

    profile = "hybrid"

    def __init__(self, rankers: Sequence[Ranker], depth: int = DEPTH) -> None:
        self._rankers = tuple(rankers)
        self._depth = depth
        self.stages = dict[str, Histogram]()  # of rankers that say where their time goes; else one by the ranker's name
        for ranker in self._rankers:
            self.stages |= ranker.stages if isinstance(ranker, Staged) else {ranker.profile: Histogram()}
        parts = " ".join(ranker.digest for ranker in self._rankers)
        self.digest = hashlib.sha256(f"rrf k={K} depth={depth} {parts}".encode()).hexdigest()

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        """The at most k rows with the best fused ranks.

        Raises:
            QueryError: k below 1.
            RetrievalError: what a ranker raises: a fusion of what is left would be another profile.
        """
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        columns = [self._column(ranker, queries) for ranker in self._rankers]
        return [_cut(fuse(rankings), k) for rankings in zip(*columns, strict=True)]

    def _column(self, ranker: Ranker, queries: Sequence[str]) -> list[Ranking]:
        if isinstance(ranker, Staged):
            return ranker.rank(queries, self._depth)
        with self.stages[ranker.profile].timed():
            return ranker.rank(queries, self._depth)


def fuse(rankings: Sequence[Ranking]) -> Ranking:
    """All rows of the rankings, by the sum of their reciprocal ranks; equal sums by ascending row.

    The sums are exact: over a common denominator they are whole numbers, so that equal ranks are equal scores whichever ranker
    gave them.
    """
    longest = max(len(ranking.rows) for ranking in rankings)
    denominator = math.lcm(*range(K + 1, K + longest + 1))
    sums = dict[int, int]()
    for ranking in rankings:
        for rank, row in enumerate(ranking.rows.tolist(), start=1):
            sums[row] = sums.get(row, 0) + denominator // (K + rank)
    rows = np.fromiter(sums, dtype=np.int64, count=len(sums))
    scores = np.fromiter((total / denominator for total in sums.values()), dtype=np.float32, count=len(sums))
    order = np.lexsort((rows, -scores))
    return Ranking(rows[order], scores[order])


def _cut(ranking: Ranking, k: int) -> Ranking:
    return Ranking(ranking.rows[:k], ranking.scores[:k])
