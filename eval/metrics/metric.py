"""What a metric is: a function of labels, scores and weights, written so that many weightings are computed at once.

A bootstrap draw is a weighting: how often each trace was drawn. So intervals need no copies of rows, and what is costly, such as
sorting, happens once for hundreds of draws.
"""

from collections.abc import Callable
from functools import update_wrapper

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Weighted = Callable[[Labels, Floats, Floats], Floats]
Size = Callable[[Floats], Floats]


class Metric:
    """A metric: `metric(labels, scores)` is its value. Decorates a function over labels [N], scores [N] and weights [S, N]."""

    def __init__(self, weighted: Weighted) -> None:
        """Take a function that gives a value for each of S weightings, NaN where it is undefined."""
        self.weighted = weighted
        update_wrapper(self, weighted)

    def __call__(self, labels: Labels, scores: Floats, weights: Floats | None = None) -> float:
        """The value; NaN where it is undefined.

        Args:
            labels: int64 [N], 1 or 0.
            scores: float64 [N].
            weights: float64 [N], not negative; all 1 if None.

        Raises:
            ValueError: labels other than 0 and 1, or scores that are NaN.
        """
        check(labels, scores)
        if not len(labels):
            return float("nan")
        weights = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
        return float(self.weighted(labels, scores, weights[np.newaxis])[0])


class Distance(Metric):
    """How far a vector of means is from 0, such as a calibration error. Decorates a function of vectors [S, C].

    Chance deviations add to it and never cancel: it is too high on average, and in bootstrap draws, which add their own chance,
    higher still. `eval.metrics.distances` has intervals for it.
    """

    def __init__(self, size: Size, *, excess: Weighted) -> None:
        """Take what makes the vector and what measures it.

        Args:
            size: distances [S] from 0 of vectors [S, C].
            excess: weighted sums [S, C] over the traces; over their weight they are the vector.
        """
        super().__init__(self._weighted)
        self.size = size
        self.excess = excess
        update_wrapper(self, size)

    def means(self, labels: Labels, scores: Floats, weights: Floats) -> Floats:
        """The vectors [S, C]; NaN without weight."""
        return share(self.excess(labels, scores, weights), weights.sum(axis=1, keepdims=True))

    def _weighted(self, labels: Labels, scores: Floats, weights: Floats) -> Floats:
        distances = self.size(np.nan_to_num(self.means(labels, scores, weights)))
        return np.where(weights.sum(axis=1) > 0, distances, np.nan)


def check(labels: Labels, scores: Floats) -> None:
    """Refuse rows that a metric would take for numbers that they are not.

    Raises:
        ValueError: what is wrong.
    """
    if labels.shape != scores.shape or labels.ndim != 1:
        raise ValueError(f"expected as many labels as scores, found {labels.shape} and {scores.shape}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("labels are 0 or 1; leave out what has none")
    if np.isnan(scores).any():
        raise ValueError("a score is NaN; leave out what was not judged")


def share(part: Floats, whole: Floats) -> Floats:
    """`part / whole`, NaN where the whole is nothing. The whole is broadcast to the part."""
    shares: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole != 0)
    return shares


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """Means [S] of values [N] under weights [S, N]."""
    return share(weights @ values, weights.sum(axis=1))


def ties(keys: Floats | Labels) -> tuple[Labels, Labels]:
    """The order that sorts `keys`, and where in it each run of equal keys starts: what `np.add.reduceat` sums over."""
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    return order, np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
