"""Can the judge tell right traces from wrong ones?"""

from dataclasses import dataclass

import numpy as np

from eval.metrics.metric import Floats, Labels, Metric, check, share, ties, weighted_mean


@Metric
def accuracy(labels: Labels, scores: Floats, weights: Floats) -> Floats:
    """Share of traces that are judged rightly. Scores are verdicts, or probabilities of which more than 0.5 says right."""
    return weighted_mean(_right(labels, scores), weights)


@Metric
def balanced_accuracy(labels: Labels, scores: Floats, weights: Floats) -> Floats:
    """Mean of the accuracies on right and on wrong traces, scores as for `accuracy`. NaN with only one class."""
    right = _right(labels, scores)
    of_class = [share(weights @ (right * (labels == label)), weights @ (labels == label)) for label in (0, 1)]
    return (of_class[0] + of_class[1]) / 2


@Metric
def auroc(labels: Labels, scores: Floats, weights: Floats) -> Floats:
    """Chance that a right trace scores above a wrong one, ties counting half (Mann-Whitney). NaN with only one class."""
    order, starts = ties(scores)
    right, wrong = _by_class(labels, weights, order, starts)
    below = np.cumsum(wrong, axis=1) - wrong / 2
    return share((right * below).sum(axis=1), right.sum(axis=1) * wrong.sum(axis=1))


@Metric
def auprc(labels: Labels, scores: Floats, weights: Floats) -> Floats:
    """Average precision: precision at each distinct score, weighted by the recall gained there. NaN without a right trace.

    Chance level is the share of right traces.
    """
    order, starts = ties(-scores)
    right, wrong = _by_class(labels, weights, order, starts)
    found = np.cumsum(right, axis=1)
    taken = found + np.cumsum(wrong, axis=1)
    precision = np.divide(found, taken, out=np.zeros(found.shape), where=taken > 0)
    return share((right * precision).sum(axis=1), found[:, -1])


@dataclass(frozen=True, slots=True)
class Roc:
    """The ROC curve: from (0, 0), one point for each distinct score, highest first, to (1, 1)."""

    thresholds: Floats  # [K] the score from which on a trace is taken; infinite at the first point
    false_positive_rate: Floats  # [K]
    true_positive_rate: Floats  # [K]


def roc_curve(labels: Labels, scores: Floats) -> Roc:
    """Points of the ROC curve; rates are NaN where a class is missing.

    Raises:
        ValueError: labels other than 0 and 1, or scores that are NaN.
    """
    check(labels, scores)
    if not len(labels):
        return Roc(np.asarray([np.inf]), np.asarray([np.nan]), np.asarray([np.nan]))
    order, starts = ties(-scores)
    right, wrong = _by_class(labels, np.ones((1, len(labels))), order, starts)
    rates = []
    for counts in (wrong, right):
        reached = np.cumsum(np.concatenate([[0.0], counts[0]]))
        rates.append(share(reached, np.full(reached.shape, reached[-1])))
    return Roc(np.concatenate([[np.inf], scores[order][starts]]), rates[0], rates[1])


def _right(labels: Labels, scores: Floats) -> Floats:
    return np.where((scores > 0.5) == (labels == 1), 1.0, 0.0)


def _by_class(labels: Labels, weights: Floats, order: Labels, starts: Labels) -> tuple[Floats, Floats]:
    """Weight [S, K] of right and of wrong traces at each distinct score."""
    in_order, right = weights[:, order], labels[order]
    return np.add.reduceat(in_order * right, starts, axis=1), np.add.reduceat(in_order * (1 - right), starts, axis=1)
