"""Does a probability mean what it says: of the traces with p = 0.7, are seven in ten right?

Expected calibration errors in bins are known everywhere and depend on their bins: with few traces they are far from 0 for a
perfect judge as well. `eval.metrics.smooth_ece` has no bins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from eval.metrics.metric import Distance, Floats, Labels, Metric, Weighted, check, weighted_mean

BINS = 15
_SMALLEST = float(
    np.finfo(np.float64).eps
)  # a probability of 0 for what happens costs this one's logarithm, not infinity


@Metric
def brier(labels: Labels, scores: Floats, weights: Floats) -> Floats:
    """Mean squared distance of probability and outcome: 0 at best, 0.25 for who always says one half."""
    return weighted_mean((scores - labels) ** 2, weights)


@Metric
def log_loss(labels: Labels, scores: Floats, weights: Floats) -> Floats:
    """Mean surprise in nats, ln 2 for who always says one half."""
    p = np.clip(scores, _SMALLEST, 1 - _SMALLEST)
    return weighted_mean(-np.log(np.where(labels == 1, p, 1 - p)), weights)


def equal_width_bins(scores: Floats) -> Labels:
    """The bin [N] of each probability: [0, 1/15), [1/15, 2/15), …, the last one with 1."""
    return np.minimum((scores * BINS).astype(np.int64), BINS - 1)


def equal_mass_bins(scores: Floats) -> Labels:
    """The bin [N] of each score; equal scores share one, so that some bins may stay empty."""
    edges = np.quantile(scores, np.arange(1, BINS) / BINS)
    return np.searchsorted(edges, scores, side="right").astype(np.int64)


def _excess_in(bins: Callable[[Floats], Labels]) -> Weighted:
    """Weighted sums [S, 15] of outcome - probability in each bin."""

    def excess(labels: Labels, scores: Floats, weights: Floats) -> Floats:
        excess_NB = np.zeros((len(labels), BINS))
        excess_NB[np.arange(len(labels)), bins(scores)] = labels - scores
        return weights @ excess_NB

    return excess


@partial(Distance, excess=_excess_in(equal_width_bins))
def ece(excess_SB: Floats) -> Floats:
    """Expected calibration error: |mean outcome - mean probability| in 15 bins of equal width, averaged by their traces."""
    return _sum_of_sizes(excess_SB)


@partial(Distance, excess=_excess_in(equal_mass_bins))
def ece_equal_mass(excess_SB: Floats) -> Floats:
    """Expected calibration error in 15 bins with about the same number of traces.

    Bins are made from the scores as they are, whatever the weights: draws of a bootstrap share them.
    """
    return _sum_of_sizes(excess_SB)


def _sum_of_sizes(excess_SB: Floats) -> Floats:
    sums: Floats = np.abs(excess_SB).sum(axis=1)
    return sums


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """What was said in one bin and what was true."""

    low: float  # least score in it
    high: float  # greatest
    count: int
    mean_score: float
    share_right: float


def reliability_curve(labels: Labels, scores: Floats, *, equal_mass: bool = False) -> list[ReliabilityBin]:
    """The reliability diagram: the bins that are not empty, from low to high scores.

    Raises:
        ValueError: labels other than 0 and 1, or scores that are NaN.
    """
    check(labels, scores)
    if not len(labels):
        return []
    bins = equal_mass_bins(scores) if equal_mass else equal_width_bins(scores)
    curve = []
    for number in np.unique(bins):
        member = bins == number
        said, true = scores[member], labels[member]
        curve.append(
            ReliabilityBin(float(said.min()), float(said.max()), len(said), float(said.mean()), float(true.mean()))
        )
    return curve
