"""The exact score of a query and a row, and the order of rows.

A score is the float64 inner product of query and stored vector, summed by numpy within the row, rounded to float32. It depends on
the two vectors alone: not on the batch, the shard or the back end. Rows are ordered by score descending, then row ascending.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Stored = NDArray[np.float32] | NDArray[np.float16]
Vectors = NDArray[np.float32]
Scores = NDArray[np.float32]
Rows = NDArray[np.int64]
Wide = Callable[[Rows], NDArray[np.float64]]  # rows of an index as float64 [n, dim]

# Rows made float64 at once, so that scratch memory stays small.
_BLOCK = 2048
# With so many queries a row, one matrix product is faster than a sum for each pair.
_DENSE = 8
_NO_ROW = np.iinfo(np.int64).max


def exact_scores(queries: Vectors, wide: Wide, numbers: Rows, rows: Rows) -> Scores:
    """Scores of pairs: query `numbers[i]` with row `rows[i]`, float32 [p]. Queries float32 [q, dim]."""
    unique, places = np.unique(rows, return_inverse=True)
    if len(rows) < _DENSE * len(unique):
        return _pairwise(queries, wide, numbers, rows)
    scores = np.empty(len(rows), dtype=np.float32)
    order = np.argsort(places, kind="stable")
    borders = np.searchsorted(places[order], np.arange(0, len(unique) + _BLOCK, _BLOCK))
    for block, (start, stop) in enumerate(pairwise(borders)):
        pairs = order[start:stop]
        terms = wide(unique[block * _BLOCK :][:_BLOCK])
        scores[pairs] = _by_product(queries, terms, numbers[pairs], places[pairs] - block * _BLOCK)
    return scores


def _pairwise(queries: Vectors, wide: Wide, numbers: Rows, rows: Rows) -> Scores:
    """The definition itself, pair by pair."""
    scores = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        terms = wide(rows[block])
        terms *= queries[numbers[block]]
        # Not `@`: numpy sums each row by itself, in an order that does not depend on its neighbours.
        scores[block] = terms.sum(axis=1)
    scores += np.float32(0)  # no -0.0
    return scores


def _by_product(queries: Vectors, vectors: NDArray[np.float64], numbers: Rows, rows: Rows) -> Scores:
    """The same scores from one matrix product, whose last float64 bits vary.

    Where both ends of the interval of its error round to one float32, that is the score; the few other pairs are summed.
    """
    others = queries.astype(np.float64)
    close = (vectors @ others.T)[rows, numbers]
    # Two sums of dim terms, in any order, differ by at most 2 * dim * 2^-53 * |q| * |x|; twice that for what this leaves out.
    error = np.sqrt((vectors * vectors).sum(axis=1))[rows] * np.sqrt((others * others).sum(axis=1))[numbers]
    error *= 4 * queries.shape[1] * 2.0**-53
    scores: Scores = (close - error).astype(np.float32)
    doubtful = np.flatnonzero(scores != (close + error).astype(np.float32))
    scores[doubtful] = _pairwise(queries, vectors.__getitem__, numbers[doubtful], rows[doubtful])
    scores += np.float32(0)
    return scores


class Best:
    """The best k of all pairs seen so far, for each query."""

    def __init__(self, queries: int, k: int) -> None:
        self.scores: Scores = np.full((queries, k), -np.inf, dtype=np.float32)
        self.rows: Rows = np.full((queries, k), _NO_ROW)

    @property
    def last(self) -> Scores:
        """The k-th score of each query, float32 [q]; -inf while fewer were seen."""
        return self.scores[:, -1]

    def add(self, numbers: Rows, scores: Scores, rows: Rows) -> None:
        """Take more pairs into account, in any order; no pair twice."""
        last, last_row = self.last[numbers], self.rows[numbers, -1]
        better = (scores > last) | ((scores == last) & (rows < last_row))
        numbers, scores, rows = numbers[better], scores[better], rows[better]
        if not len(rows):
            return
        changed, numbers = np.unique(numbers, return_inverse=True)
        k = self.scores.shape[1]
        numbers = np.concatenate([np.repeat(np.arange(len(changed)), k), numbers])
        scores = np.concatenate([self.scores[changed].ravel(), scores])
        rows = np.concatenate([self.rows[changed].ravel(), rows])
        order = np.lexsort((rows, -scores, numbers))
        firsts = np.searchsorted(numbers[order], np.arange(len(changed)))
        kept = order[firsts[:, np.newaxis] + np.arange(k)]
        self.scores[changed], self.rows[changed] = scores[kept], rows[kept]

    @property
    def whole(self) -> bool:
        """Whether every query has k rows with scores that are numbers. NaN is never among the best, and leaves a gap."""
        return bool((self.rows != _NO_ROW).all() and np.isfinite(self.scores).all())


def merge(parts: Sequence[tuple[Scores, Rows]], k: int) -> tuple[Scores, Rows]:
    """The best k of several shards' best.

    Args:
        parts: for each shard scores float32 [q, k_i] and global rows int64 [q, k_i], in any order.
        k: at least 1; fewer come out where the parts hold fewer.

    Returns:
        Scores float32 [q, k'], descending, and rows int64 [q, k'], ascending among equal scores.
    """
    scores = np.concatenate([part[0] for part in parts], axis=1)
    rows = np.concatenate([part[1] for part in parts], axis=1)
    order = np.lexsort((rows, -scores), axis=-1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def longest_row(vectors: Stored) -> float:
    """The largest Euclidean length of a row; NaN or infinity if any row has one."""
    longest = 0.0
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK].astype(np.float64)
        longest = float(np.maximum(longest, np.sqrt(np.einsum("ij,ij->i", block, block)).max()))
    return longest
