"""Two scorers on the same traces: differences on the same draws of questions, so that what makes questions hard cancels out."""

from collections.abc import Mapping

import numpy as np

from eval.columns import Columns, whole_questions
from eval.evaluation.estimates import figure, number
from eval.evaluation.scorers import Scorer
from eval.evaluation.selection import every_trace, gathered, judged_by
from eval.metrics import (
    Difference,
    Floats,
    Metric,
    accuracy,
    auprc,
    auroc,
    balanced_accuracy,
    brier,
    paired_difference,
    resample,
    smooth_ece,
)
from eval.metrics.intervals import Statistic
from eval.metrics.metric import weighted_mean
from eval.report.schema import Compared
from eval.scaling import scaling
from verifier.selection import Strategy

_OF_VERDICTS: Mapping[str, Metric] = {"accuracy": accuracy, "balanced accuracy": balanced_accuracy}
_OF_ORDER: Mapping[str, Metric] = {"AUROC": auroc, "AUPRC": auprc}
_OF_PROBABILITIES: Mapping[str, Metric] = {"Brier": brier, "smooth ECE": smooth_ece}
_STRATEGIES = (Strategy.BEST, Strategy.HARD, Strategy.SOFT)


def differences(columns: Columns, first: Scorer, second: Scorer) -> list[Compared]:
    """All that is compared; choices of judges only, for a baseline's are not meant to be weighed with its p."""
    verified = verification_differences(columns, first, second)
    both_judge = first.is_judge and second.is_judge
    return [*verified, *selection_differences(columns, first, second)] if both_judge else verified


def verification_differences(columns: Columns, first: Scorer, second: Scorer) -> list[Compared]:
    """Differences of the metrics, over traces that both have judged and that have a label.

    With a baseline only those of the order: its verdicts and probabilities were not meant as such.
    """
    rows = np.flatnonzero((columns.labels >= 0) & (first.verdicts >= 0) & (second.verdicts >= 0))
    if not len(rows):
        return []
    labels, questions = columns.labels[rows], [columns.questions[int(row)] for row in rows]
    p = first.p[rows], second.p[rows]
    verdicts = first.verdicts[rows].astype(np.float64), second.verdicts[rows].astype(np.float64)
    todo = [(name, metric, p) for name, metric in _OF_ORDER.items()]
    if first.is_judge and second.is_judge:
        todo += [(name, metric, verdicts) for name, metric in _OF_VERDICTS.items()]
        todo += [(name, metric, p) for name, metric in _OF_PROBABILITIES.items()]
    return [_compared(name, paired_difference(metric, labels, *of, questions)) for name, metric, of in todo]


def selection_differences(columns: Columns, first: Scorer, second: Scorer) -> list[Compared]:
    """Differences of accuracy, all traces taken, by strategy, over the questions all of whose traces both have come to."""
    rows = whole_questions(columns.questions, first.come_to & second.come_to)
    known = gathered(columns.take(rows))
    most = every_trace(known.candidates)
    if not most:
        return []
    one, other = (scaling(judged_by(known, scorer.take(rows)), [most], _STRATEGIES) for scorer in (first, second))
    found = []
    for strategy in _STRATEGIES:
        resampled = resample(_mean_of(one[strategy][0] - other[strategy][0]), known.questions)
        difference = Difference(
            float(one[strategy][0].mean()), float(other[strategy][0].mean()), resampled.interval(), resampled.p_value()
        )
        found.append(_compared(f"{strategy.value}, N = {most}", difference))
    return found


def _mean_of(values_Q: Floats) -> Statistic:
    return lambda weights_SQ: weighted_mean(values_Q, weights_SQ)


def _compared(name: str, found: Difference) -> Compared:
    return Compared(
        name=name,
        first=number(found.first),
        second=number(found.second),
        difference=figure(found.difference),
        p_value=number(found.p_value),
    )
