"""Judgments against labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.metrics import Estimate, Floats, Labels, auroc, balanced_accuracy, clustered_bootstrap
from eval.packs import LabelledCase
from verifier.types import Judgment


@dataclass(frozen=True, slots=True)
class Report:
    """How a run of judgments compares with the labels."""

    estimates: Mapping[str, Estimate]
    scored: int  # judged and labelled: what the estimates rest on
    right: int  # of these, with label 1
    not_judged: int
    unlabelled: int


def read_judgments(path: Path) -> list[Judgment]:
    """Read a file of judgments; raises ValueError with the line for one that is not."""
    judgments = []
    # Lines of bytes, for a string would be cut at U+2028 and its like as well, which end no line of JSONL.
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            judgments.append(Judgment.model_validate_json(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not a judgment") from error
    return judgments


def measure(judgments: Iterable[Judgment], cases: Iterable[LabelledCase]) -> Report:
    """AUROC of p(1), accuracy and balanced accuracy of the verdicts; questions are the units of the intervals.

    Raises:
        ValueError: a judgment's case is not in the pack as it is now, or judged twice, or nothing is left to score.
    """
    known = {labelled.case.id: labelled for labelled in cases}
    labels, probabilities, clusters = [], [], []
    not_judged = unlabelled = 0
    for judgment in judgments:
        if judgment.id not in known:
            raise ValueError(
                f"{judgment.id!r} is not in the pack, or judged twice: are these the judgments of another?"
            )
        labelled = known.pop(judgment.id)
        if judgment.case_digest != labelled.case.digest:
            raise ValueError(f"{judgment.id!r} was judged when its question or trace was another")
        if judgment.p_correct is None:
            not_judged += 1
        elif labelled.label is None:
            unlabelled += 1
        else:
            labels.append(labelled.label)
            probabilities.append((judgment.p_correct, judgment.verdict))
            clusters.append(labelled.question_id)
    if not labels:
        raise ValueError("no judgment with a label: nothing to measure")
    gold = np.asarray(labels, dtype=np.int64)
    p = np.asarray([probability for probability, _ in probabilities], dtype=np.float64)
    verdicts = np.asarray([verdict for _, verdict in probabilities], dtype=np.float64)
    estimates = {
        "AUROC": clustered_bootstrap(auroc, gold, p, clusters),
        "accuracy": clustered_bootstrap(_accuracy, gold, verdicts, clusters),
        "balanced accuracy": clustered_bootstrap(_balanced, gold, verdicts, clusters),
    }
    return Report(estimates, len(labels), int(gold.sum()), not_judged, unlabelled)


def _accuracy(labels: Labels, verdicts: Floats) -> float:
    return float((labels == verdicts).mean())


def _balanced(labels: Labels, verdicts: Floats) -> float:
    return balanced_accuracy(labels, verdicts.astype(np.int64))
