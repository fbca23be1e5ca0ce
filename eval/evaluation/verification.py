"""How well scorers tell right traces from wrong ones, and the diagrams that show it."""

from collections.abc import Mapping, Sequence

import numpy as np

from eval.columns import Columns
from eval.evaluation.estimates import figure
from eval.evaluation.scorers import Scorer
from eval.metrics import (
    Floats,
    Labels,
    Metric,
    accuracy,
    auprc,
    auroc,
    balanced_accuracy,
    brier,
    clustered_bootstrap,
    ece,
    reliability_curve,
    risk_coverage,
    roc_curve,
    smooth_ece,
)
from eval.report.schema import Bin, Curve, ScorerCurves, Verification

_OF_VERDICTS: Mapping[str, Metric] = {"accuracy": accuracy, "balanced accuracy": balanced_accuracy}
_OF_ORDER: Mapping[str, Metric] = {"AUROC": auroc, "AUPRC": auprc}
_OF_PROBABILITIES: Mapping[str, Metric] = {"Brier": brier, "ECE": ece, "smooth ECE": smooth_ece}
_BARS = 20
_POINTS = 201  # of a curve: more than can be seen


def verification(columns: Columns, generator: str, scorer: Scorer) -> Verification:
    """All metrics over the traces that are judged and labelled.

    Of baselines, those of calibration are left out; of calibrated p, all others, which are those of the judge.
    """
    rows = _measurable(columns, scorer)
    labels, p, questions = columns.labels[rows], scorer.p[rows], [columns.questions[int(row)] for row in rows]
    verdicts = scorer.verdicts[rows].astype(np.float64)
    todo = [] if scorer.is_calibrated else [(name, metric, verdicts) for name, metric in _OF_VERDICTS.items()]
    todo += [] if scorer.is_calibrated else [(name, metric, p) for name, metric in _OF_ORDER.items()]
    todo += [(name, metric, p) for name, metric in _OF_PROBABILITIES.items()] if scorer.is_judge else []
    figures = {name: clustered_bootstrap(metric, labels, of, questions) for name, metric, of in todo}
    return Verification(
        scorer=scorer.name,
        generator=generator,
        traces=len(rows),
        right=int(labels.sum()),
        figures={name: figure(estimate) for name, estimate in figures.items()},
    )


def curves(columns: Columns, scorer: Scorer) -> ScorerCurves | None:
    """What the diagrams show; None where there are not both right and wrong traces.

    Curves that only the order decides are left out of calibrated p: they are those of the judge.
    """
    rows = _measurable(columns, scorer)
    labels, p = columns.labels[rows], scorer.p[rows]
    if not len(rows) or labels.min() == labels.max():
        return None
    roc, risk = roc_curve(labels, p), risk_coverage(labels, p)
    right, wrong = (np.histogram(p[labels == label], bins=_BARS, range=(0, 1))[0].tolist() for label in (1, 0))
    return ScorerCurves(
        scorer=scorer.name,
        roc=None if scorer.is_calibrated else _curve(roc.false_positive_rate, roc.true_positive_rate),
        risk_coverage=None if scorer.is_calibrated else _curve(risk.coverage, 1 - risk.accuracy),
        reliability=[
            Bin(p=round(one.mean_score, 6), right=round(one.share_right, 6), count=one.count)
            for one in (reliability_curve(labels, p) if scorer.is_judge else [])
        ],
        histogram_right=right,
        histogram_wrong=wrong,
    )


def _measurable(columns: Columns, scorer: Scorer) -> Labels:
    return np.flatnonzero((columns.labels >= 0) & ~np.isnan(scorer.p) & (scorer.verdicts >= 0))


def _curve(x: Floats, y: Floats) -> Curve:
    """The line through the points, with no more of them than can be seen; both ends are kept."""
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), _POINTS)).round().astype(np.int64))
    return Curve(x=_rounded(x[kept]), y=_rounded(y[kept]))


def _rounded(values: Floats) -> Sequence[float]:
    return np.round(values, 6).tolist()  # type: ignore[no-any-return]
