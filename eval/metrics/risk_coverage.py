"""What is gained by not answering: how often the judge is wrong among the traces it is surest of.

The verdict is 1 where p is more than 0.5, and the confidence in it is max(p, 1 - p). At coverage c the judge answers for the
share c of traces that it is surest of, and the risk is the share of wrong verdicts among them. Within equal confidences no
order is better than another, so a part of such a run has the risk of the whole run: nothing depends on the order of rows.
"""

from dataclasses import dataclass

import numpy as np

from eval.metrics.metric import Floats, Labels, Metric, check, share, ties


@Metric
def aurc(labels: Labels, scores: Floats, weights: Floats) -> Floats:
    """Area under the risk-coverage curve: mean risk over all coverages from 0 to 1 (Geifman et al. 2019, in the limit).

    0 for a judge that is never wrong; the error rate for one whose confidence says nothing.
    """
    order, starts = ties(-confidence(scores))
    weights_SK, wrong_SK = _runs(labels, scores, weights, order, starts)
    total = weights_SK.sum(axis=1, keepdims=True)
    width, errors = share(weights_SK, total), share(wrong_SK, total)
    to = np.cumsum(width, axis=1)
    since, before = to - width, np.cumsum(errors, axis=1) - errors
    # Within a run errors(c) = before + slope (c - since), and the risk errors(c) / c is integrated over it.
    slope = np.divide(errors, width, out=np.zeros(errors.shape), where=width > 0)
    started = (since > 1e-12) & (width > 0)
    growth = np.log(np.divide(to, since, out=np.ones(to.shape), where=started))
    area: Floats = (errors + np.where(started, before - slope * since, 0) * growth).sum(axis=1)
    return area


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """The risk-coverage curve: one point for each distinct confidence, surest first."""

    thresholds: Floats  # [K] answer from this confidence on
    coverage: Floats  # [K] share of traces that are answered then
    accuracy: Floats  # [K] of the answers; the risk is 1 - accuracy


def risk_coverage(labels: Labels, scores: Floats) -> RiskCoverage:
    """Points of the curve; none without traces.

    Raises:
        ValueError: labels other than 0 and 1, or scores that are NaN.
    """
    check(labels, scores)
    if not len(labels):
        return RiskCoverage(np.empty(0), np.empty(0), np.empty(0))
    sure = confidence(scores)
    order, starts = ties(-sure)
    counts_SK, wrong_SK = _runs(labels, scores, np.ones((1, len(labels))), order, starts)
    answered = np.cumsum(counts_SK[0])
    return RiskCoverage(sure[order][starts], answered / len(labels), 1 - np.cumsum(wrong_SK[0]) / answered)


@dataclass(frozen=True, slots=True)
class Abstention:
    """A rule of abstention and what it reached where it was found."""

    threshold: float  # answer where max(p, 1 - p) is at least this
    coverage: float
    accuracy: float


def abstention(labels: Labels, scores: Floats, wished: float) -> Abstention | None:
    """The threshold that answers most traces with at least the wished accuracy; None if none does.

    The accuracy it reaches on these traces flatters it: `eval.abstention` measures on questions that it was not chosen on.
    """
    curve = risk_coverage(labels, scores)
    reached = np.flatnonzero(curve.accuracy >= wished)
    if not len(reached):
        return None
    last = reached[-1]
    return Abstention(float(curve.thresholds[last]), float(curve.coverage[last]), float(curve.accuracy[last]))


def confidence(scores: Floats) -> Floats:
    """Confidence [N] in the verdict, 0.5 … 1."""
    return np.maximum(scores, 1 - scores)


def _runs(labels: Labels, scores: Floats, weights: Floats, order: Labels, starts: Labels) -> tuple[Floats, Floats]:
    """Weight [S, K] of all and of wrongly judged traces in each run of equal confidence."""
    wrong = (scores > 0.5) != (labels == 1)
    in_order = weights[:, order]
    return np.add.reduceat(in_order, starts, axis=1), np.add.reduceat(in_order * wrong[order], starts, axis=1)
