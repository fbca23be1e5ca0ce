"""Fitting calibrations, and measuring them on questions that they were not fitted on.

The figures that a calibration comes with are cross-fitted: the questions are split into five folds, each fold's traces get the
curve that was fitted on the other four, and these out-of-fold probabilities are measured. The curve that is kept is fitted on
all. Where the method is chosen too, it is chosen inside each four fifths, so that the choice is no part of what is measured.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from eval.folds import FOLDS, question_folds
from eval.metrics import (
    Estimate,
    Floats,
    Labels,
    Metric,
    brier,
    clustered_bootstrap,
    ece,
    log_loss,
    paired_difference,
    smooth_ece,
)
from eval.quality import calibrated, judged_columns, scored
from verifier.calibration import (
    Beta,
    Calibration,
    CalibrationError,
    Curve,
    Figure,
    Fitted,
    Interval,
    Isotonic,
    Temperature,
    log_odds,
    question_digest,
)
from verifier.packs import LabelledCase
from verifier.types import Judgment

Method = Literal["temperature", "beta", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "beta", "isotonic")
MEASURES: Mapping[str, Metric] = {"Brier": brier, "log loss": log_loss, "ECE": ece, "smooth ECE": smooth_ece}

_QUESTIONS = 20  # fewer say little of other questions
# Right traces, and wrong ones, that a method needs: one parameter, three, and as many as there are steps.
_OF_A_CLASS: Mapping[Method, int] = {"temperature": 30, "beta": 30, "isotonic": 200}


def calibrate(
    judgments: Sequence[Judgment],
    cases: Sequence[LabelledCase],
    pack: str,
    methods: Sequence[Method] = METHODS,
    seed: int = 0,
) -> Calibration:
    """Fit a calibration on labelled judgments of one judge; its figures are out of fold.

    Args:
        judgments: of one judge.
        cases: the pack that they judge.
        pack: its name, for the record.
        methods: kinds of curve. Of several, those that there are too few traces for are left out, and the one with the least
            out-of-fold log loss is taken.
        seed: of the folds and of the intervals.

    Raises:
        CalibrationError: there are too few questions, or too few right or wrong traces; or several judges.
        ValueError: the judgments are not of this pack.
    """
    judges = {judgment.judge_id for judgment in judgments}
    if len(judges) > 1:
        raise CalibrationError(f"the judgments are by {len(judges)} judges; a calibration is for one")
    usable = scored(judged_columns(judgments, cases))
    labels, p, questions, used = usable.labels, usable.p, usable.questions, set(usable.traces)
    methods = admitted(labels, questions, methods)
    after = cross_fit(labels, p, questions, methods, seed)
    return Calibration(
        judge_id=judges.pop(),
        curve=fit(labels, p, questions, methods, seed),
        fitted=Fitted(
            pack=pack,
            questions=len(set(questions)),
            traces=len(labels),
            right=int(labels.sum()),
            folds=FOLDS,
            seed=seed,
            question_digests=sorted({question_digest(one.case.question) for one in cases if one.case.id in used}),
        ),
        figures={name: _figure(metric, labels, p, after, questions, seed=seed) for name, metric in MEASURES.items()},
    )


def admitted(labels: Labels, questions: Sequence[str], methods: Sequence[Method]) -> tuple[Method, ...]:
    """Those of the methods that there are enough questions and traces for.

    Raises:
        CalibrationError: there are too few for any.
    """
    right, wrong, asked = int(labels.sum()), int((1 - labels).sum()), len(set(questions))
    enough = tuple(method for method in methods if min(right, wrong) >= _OF_A_CLASS[method])
    if asked < _QUESTIONS or not enough:
        needed = min(_OF_A_CLASS[method] for method in methods)
        raise CalibrationError(
            f"too little to fit a calibration on: {right} right and {wrong} wrong traces of {asked} questions; needed are "
            f"{needed} of each ({', '.join(methods)}) and {_QUESTIONS} questions"
        )
    return enough


def cross_fit(labels: Labels, p: Floats, questions: Sequence[str], methods: Sequence[Method], seed: int = 0) -> Floats:
    """Out-of-fold calibrated probabilities [N]: each from a curve that was fitted on other questions."""
    folds, out_of_fold = question_folds(questions, seed), np.empty(len(p))
    for fold in range(FOLDS):
        rest, held_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        curve = fit(labels[rest], p[rest], [questions[int(row)] for row in rest], methods, seed)
        out_of_fold[held_out] = calibrated(curve, p[held_out])
    return out_of_fold


def fit(labels: Labels, p: Floats, questions: Sequence[str], methods: Sequence[Method], seed: int = 0) -> Curve:
    """A curve fitted on all of these traces, each counting alike; of several methods, the one that does best out of fold."""
    if len(methods) == 1:
        return _FITS[methods[0]](labels, p)
    losses = {method: log_loss(labels, cross_fit(labels, p, questions, [method], seed)) for method in methods}
    return _FITS[min(losses, key=losses.__getitem__)](labels, p)


def _temperature(labels: Labels, p: Floats) -> Temperature:
    yes, no = _log_odds(p)
    (slope,), _ = _logistic((yes - no)[:, np.newaxis], labels, intercept=False)
    return Temperature(slope=max(slope, 0.0))


def _beta(labels: Labels, p: Floats) -> Beta:
    """As Kull et al. fit it: a side whose slope would be negative is left out and the rest is fitted again."""
    sides = np.column_stack([*_log_odds(p)]) * [1, -1]
    kept = [0, 1]
    while kept:
        slopes, shift = _logistic(sides[:, kept], labels, intercept=True)
        if min(slopes) >= 0:
            break
        kept.pop(int(np.argmin(slopes)))
    else:
        slopes, shift = [], float(np.log((labels.sum() + 1) / ((1 - labels).sum() + 1)))
    by_side = dict(zip(kept, slopes, strict=True))
    return Beta(a=by_side.get(0, 0.0), b=by_side.get(1, 0.0), c=shift)


def _isotonic(labels: Labels, p: Floats) -> Isotonic:
    from sklearn.isotonic import IsotonicRegression

    regression = IsotonicRegression(out_of_bounds="clip").fit(p, labels)
    # That something never happened in n traces does not make it impossible.
    least = 1 / (len(labels) + 2)
    return Isotonic(
        p=regression.X_thresholds_.tolist(),
        calibrated=np.clip(regression.y_thresholds_, least, 1 - least).tolist(),
    )


_FITS: Mapping[Method, Callable[[Labels, Floats], Curve]] = {
    "temperature": _temperature,
    "beta": _beta,
    "isotonic": _isotonic,
}


def _log_odds(p: Floats) -> tuple[Floats, Floats]:
    pairs = np.asarray([log_odds(float(value)) for value in p])
    return pairs[:, 0], pairs[:, 1]


def _logistic(features: Floats, labels: Labels, *, intercept: bool) -> tuple[list[float], float]:
    """Slopes and shift of a logistic regression on Platt's targets, which stay finite where the classes are separable."""
    from sklearn.linear_model import LogisticRegression

    right, wrong = int(labels.sum()), int((1 - labels).sum())
    target = np.where(labels == 1, (right + 1) / (right + 2), 1 / (wrong + 2))
    # The penalty is far below any digit that is shown; it decides where p says nothing at all.
    regression: Any = LogisticRegression(C=1e6, fit_intercept=intercept, solver="newton-cholesky", tol=1e-8)
    regression.fit(
        np.concatenate([features, features]),
        np.repeat([1, 0], len(labels)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    return regression.coef_[0].tolist(), float(np.sum(regression.intercept_))


def _figure(
    metric: Metric, labels: Labels, before: Floats, after: Floats, questions: Sequence[str], *, seed: int
) -> Figure:
    change = paired_difference(metric, labels, after, before, questions, seed=seed)
    return Figure(
        before=_interval(clustered_bootstrap(metric, labels, before, questions, seed=seed)),
        after=_interval(clustered_bootstrap(metric, labels, after, questions, seed=seed)),
        change=_interval(change.difference),
        p_value=None if np.isnan(change.p_value) else change.p_value,
    )


def _interval(estimate: Estimate) -> Interval:
    return Interval(value=estimate.value, low=estimate.low, high=estimate.high)
