"""How good a judge is: pure functions over labels and probabilities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def auroc(labels: Labels, scores: Floats) -> float:
    """Chance that a right trace scores above a wrong one, ties counting half (Mann-Whitney). NaN with only one class."""
    positives, negatives = int(labels.sum()), int((1 - labels).sum())
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    ranks = mean_rank[inverse]
    return float((ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def balanced_accuracy(labels: Labels, verdicts: Labels) -> float:
    """Mean of the accuracies on right and on wrong traces. NaN with only one class."""
    if labels.min() == labels.max():
        return float("nan")
    return float(np.mean([(verdicts[labels == label] == label).mean() for label in (0, 1)]))


def clustered_bootstrap(
    metric: Callable[[Labels, Floats], float], labels: Labels, scores: Floats, clusters: Sequence[str], *,
    samples: int = 1000, seed: int = 0,
) -> Estimate:  # fmt: skip
    """A metric with its 95 % percentile interval; whole questions are drawn, for traces of one question are not independent.

    Draws in which the metric is undefined are left out.
    """
    _, group = np.unique(np.asarray(clusters), return_inverse=True)
    members = [np.flatnonzero(group == index) for index in range(group.max() + 1)]
    random = np.random.default_rng(seed)
    draws = []
    for _ in range(samples):
        rows = np.concatenate([members[index] for index in random.integers(len(members), size=len(members))])
        draws.append(metric(labels[rows], scores[rows]))
    kept = np.asarray(draws)[~np.isnan(draws)]
    low, high = np.percentile(kept, [2.5, 97.5]) if len(kept) else (float("nan"), float("nan"))
    return Estimate(metric(labels, scores), float(low), float(high))
