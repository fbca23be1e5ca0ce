"""What abstaining reaches on questions that the threshold was not chosen on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.folds import FOLDS, question_folds
from eval.metrics import Estimate, Floats, Labels, abstention, bootstrap
from eval.metrics.metric import share, weighted_mean
from eval.metrics.risk_coverage import confidence


@dataclass(frozen=True, slots=True)
class AbstentionReport:
    """A wished accuracy, the threshold for it, and what such thresholds reach out of fold."""

    wished: float
    threshold: float | None  # chosen on all traces, for use; None: no threshold reaches the wish
    coverage: Estimate  # share of traces that are answered
    accuracy: Estimate  # of the answers; NaN where nothing is answered


def measure_abstention(
    labels: Labels, scores: Floats, questions: Sequence[str], wished: float, seed: int = 0
) -> AbstentionReport:
    """Choose the threshold on four fifths of the questions, answer the fifth with it, five times.

    Args:
        labels: int64 [N], 1 or 0.
        scores: probabilities, float64 [N].
        questions: of the traces, [N].
        wished: accuracy that the answers are to have.
        seed: of the folds and of the intervals.
    """
    folds = question_folds(questions, seed)
    answered = np.zeros(len(labels))
    for fold in range(FOLDS):
        held_out = folds == fold
        rule = abstention(labels[~held_out], scores[~held_out], wished)
        if rule is not None:
            answered[held_out] = confidence(scores[held_out]) >= rule.threshold
    right = answered * ((scores > 0.5) == (labels == 1))
    rule = abstention(labels, scores, wished)
    return AbstentionReport(
        wished,
        None if rule is None else rule.threshold,
        bootstrap(lambda weights: weighted_mean(answered, weights), questions, seed=seed),
        bootstrap(lambda weights: share(weights @ right, weights @ answered), questions, seed=seed),
    )
