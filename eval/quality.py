"""Judgments against labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.columns import NOT_JUDGED, Columns, join
from eval.metrics import (
    Difference,
    Estimate,
    Floats,
    Metric,
    accuracy,
    auprc,
    aurc,
    auroc,
    balanced_accuracy,
    brier,
    clustered_bootstrap,
    ece,
    ece_equal_mass,
    log_loss,
    paired_difference,
    smooth_ece,
)
from verifier.calibration import Calibration, CalibrationError, Curve, question_digest
from verifier.packs import LabelledCase
from verifier.types import Judgment

OF_P: Mapping[str, Metric] = {
    "AUROC": auroc,
    "AUPRC": auprc,
    "Brier": brier,
    "log loss": log_loss,
    "ECE": ece,
    "ECE, equal mass": ece_equal_mass,
    "smooth ECE": smooth_ece,
    "AURC": aurc,
}
OF_VERDICTS: Mapping[str, Metric] = {"accuracy": accuracy, "balanced accuracy": balanced_accuracy}


@dataclass(frozen=True, slots=True)
class Report:
    """How a run of judgments compares with the labels."""

    estimates: Mapping[str, Estimate]
    scored: int  # judged and labelled: what the estimates rest on
    right: int  # of these, with label 1
    questions: int  # of these
    not_judged: int
    unlabelled: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two judges on the traces that both have judged."""

    differences: Mapping[str, Difference]
    traces: int
    questions: int


def read_judgments(path: Path) -> list[Judgment]:
    """Read a file of judgments; raises ValueError with the line for one that is not.

    A last line without its end is what a killed run leaves: if it is no judgment, it is left out.
    """
    judgments = []
    text = path.read_bytes()
    # Lines of bytes, for a string would be cut at U+2028 and its like as well, which end no line of JSONL.
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            judgments.append(Judgment.model_validate_json(line))
        except ValueError as error:
            if number == len(lines) and not text.endswith(b"\n"):
                break
            raise ValueError(f"{path}, line {number}: not a judgment") from error
    return judgments


def measure(judgments: Iterable[Judgment], cases: Iterable[LabelledCase], seed: int = 0) -> Report:
    """All metrics of a run; traces of the pack that it has no judgment of are none of its business.

    Raises:
        ValueError: a judgment's case is not in the pack as it is now, or judged twice, or nothing is left to score.
    """
    return report(judged_columns(judgments, cases), seed)


def judged_columns(judgments: Iterable[Judgment], cases: Iterable[LabelledCase]) -> Columns:
    """The rows of the pack that these judgments are about.

    Raises:
        ValueError: a judgment's case is not in the pack as it is now, or judged twice.
    """
    judgments = list(judgments)
    tried = {judgment.id for judgment in judgments}
    return join([labelled for labelled in cases if labelled.case.id in tried], judgments)


def report(columns: Columns, seed: int = 0) -> Report:
    """Metrics of p(1) and of the verdicts; questions are the units of the intervals.

    Raises:
        ValueError: no trace is both judged and labelled.
    """
    was_judged, labelled = ~np.isnan(columns.p), columns.labels >= 0
    usable = scored(columns)
    if not len(usable):
        raise ValueError("no judgment with a label: nothing to measure")
    return Report(
        {
            name: clustered_bootstrap(metric, usable.labels, scores, usable.questions, seed=seed)
            for name, metric, scores in _measured(usable)
        },
        scored=len(usable),
        right=int(usable.labels.sum()),
        questions=len(set(usable.questions)),
        not_judged=int((~was_judged).sum()),
        unlabelled=int((was_judged & ~labelled).sum()),
    )


def by_generator(columns: Columns, seed: int = 0) -> dict[str, Report]:
    """A report for each generator that has a trace to score, by name."""
    reports = {}
    for name in sorted(set(columns.generators)):
        part = columns.take(np.flatnonzero(np.asarray(columns.generators) == name))
        if len(scored(part)):
            reports[name] = report(part, seed)
    return reports


def scored(columns: Columns) -> Columns:
    """The rows that are judged and labelled."""
    return columns.take(np.flatnonzero(~np.isnan(columns.p) & (columns.labels >= 0)))


def compare(first: Columns, second: Columns, seed: int = 0) -> Comparison:
    """Paired differences of all metrics, first - second, on the traces that both have judged and that have a label.

    Raises:
        ValueError: there is no such trace.
    """
    first, second = scored(first), scored(second)
    row_of = {trace: row for row, trace in enumerate(second.traces)}
    shared = [(row, row_of[trace]) for row, trace in enumerate(first.traces) if trace in row_of]
    if not shared:
        raise ValueError("the two have no judged trace with a label in common")
    one = first.take(np.asarray([row for row, _ in shared]))
    other = second.take(np.asarray([row for _, row in shared]))
    return Comparison(
        {
            name: paired_difference(metric, one.labels, mine, theirs, one.questions, seed=seed)
            for (name, metric, mine), (_, _, theirs) in zip(_measured(one), _measured(other), strict=True)
        },
        traces=len(one),
        questions=len(set(one.questions)),
    )


def _measured(columns: Columns) -> list[tuple[str, Metric, Floats]]:
    """Each metric with what it is a metric of."""
    verdicts = columns.verdicts.astype(np.float64)
    return [
        *((name, metric, columns.p) for name, metric in OF_P.items()),
        *((name, metric, verdicts) for name, metric in OF_VERDICTS.items()),
    ]


def calibrated_columns(
    columns: Columns, cases: Iterable[LabelledCase], calibration: Calibration, judges: Iterable[str]
) -> Columns:
    """The same traces with calibrated probabilities, and verdicts that follow from them (1 above 0.5).

    Args:
        columns: of the judgments.
        cases: the pack that they judge.
        calibration: of their judge.
        judges: ids of those who judged.

    Raises:
        CalibrationError: it is another judge's, or was fitted on one of these questions, so that figures would flatter it.
    """
    for judge_id in judges:
        calibration.check_judge(judge_id)
    tried, fitted_on = set(columns.traces), set(calibration.fitted.question_digests)
    asked = {question_digest(labelled.case.question) for labelled in cases if labelled.case.id in tried}
    if known := len(asked & fitted_on):
        raise CalibrationError(
            f"the calibration was fitted on {known} of these {len(asked)} questions: its figures here would be in-sample. "
            "The file has figures for them that are out of fold; measure on other questions"
        )
    p = calibrated(calibration.curve, columns.p)
    return columns.judged_by(p, np.where(np.isnan(p), NOT_JUDGED, p > 0.5).astype(np.int64))


def calibrated(curve: Curve, p: Floats) -> Floats:
    """Calibrated probabilities [N]; what was not judged (NaN) stays so."""
    return np.asarray([value if np.isnan(value) else curve.apply(float(value)) for value in p], dtype=np.float64)
