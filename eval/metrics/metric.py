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


class Metric:
    """A metric: `metric(labels, scores)` is its value. Decorates a function over labels [N], scores [N] and weights [S, N]."""

    def __init__(self, weighted: Weighted, *, inflated: bool = False) -> None:
        """Take a function that gives a value for each of S weightings, NaN where it is undefined.

        Args:
            weighted: the function.
            inflated: chance deviations add to it and never cancel, as in all distances from 0. It is too high on average, and
                in bootstrap draws, which add their own chance, higher still.
        """
        self.weighted = weighted
        self.inflated = inflated
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
