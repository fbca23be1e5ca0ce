"""Judgments joined with the pack they judge: one row a trace, in the pack's order. All that is measured is measured on these."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from eval.candidates import Flags
from eval.metrics import Floats, Labels
from verifier.packs import LabelledCase
from verifier.types import Judgment

UNLABELLED = NOT_JUDGED = -1


@dataclass(frozen=True, slots=True)
class Columns:
    """N traces, column by column."""

    questions: list[str]  # [N] id of the question that the trace is about
    traces: list[str]  # [N] id
    generators: list[str]  # [N] who wrote it; empty where the pack does not say
    answers: list[str | None]  # [N] the option that it ends with; None: unreadable
    golds: list[str | None]  # [N] the right option; None: unknown
    labels: Labels  # int64 [N]: 1 right final answer, 0 wrong, -1 unlabelled
    p: Floats  # float64 [N] in 0 … 1; NaN: not judged
    verdicts: Labels  # int64 [N]: 1, 0, or -1: not judged
    come_to: Flags  # bool [N]: there is a judgment, be it one that failed

    def __len__(self) -> int:
        return len(self.traces)

    def take(self, rows: Labels) -> Self:
        """Some of the rows, in the order asked for."""
        kept = [int(row) for row in rows]
        return replace(
            self,
            questions=[self.questions[row] for row in kept],
            traces=[self.traces[row] for row in kept],
            generators=[self.generators[row] for row in kept],
            answers=[self.answers[row] for row in kept],
            golds=[self.golds[row] for row in kept],
            labels=self.labels[rows],
            p=self.p[rows],
            verdicts=self.verdicts[rows],
            come_to=self.come_to[rows],
        )

    def judged_by(self, p: Floats, verdicts: Labels) -> Self:
        """The same traces with the opinion of somebody else."""
        return replace(self, p=p, verdicts=verdicts)


def join(cases: Sequence[LabelledCase], judgments: Iterable[Judgment] = ()) -> Columns:
    """Put the judgments beside what the pack knows. Traces without a judgment are rows that were not judged.

    Raises:
        ValueError: a judgment's case is not in the pack as it is now, or is judged twice.
    """
    row_of = {labelled.case.id: row for row, labelled in enumerate(cases)}
    if len(row_of) != len(cases):
        raise ValueError("two traces of the pack have the same id: their judgments could not be told apart")
    p = np.full(len(cases), np.nan)
    verdicts = np.full(len(cases), NOT_JUDGED, dtype=np.int64)
    come_to = np.zeros(len(cases), dtype=np.bool_)
    for judgment in judgments:
        row = row_of.pop(judgment.id, None)
        if row is None:
            raise ValueError(
                f"{judgment.id!r} is not in the pack, or judged twice: are these the judgments of another?"
            )
        if judgment.case_digest != cases[row].case.digest:
            raise ValueError(f"{judgment.id!r} was judged when its question or trace was another")
        come_to[row] = True
        if judgment.p_correct is not None and judgment.verdict is not None:
            p[row], verdicts[row] = judgment.p_correct, judgment.verdict
    labels = [UNLABELLED if labelled.label is None else labelled.label for labelled in cases]
    return Columns(
        questions=[labelled.question_id for labelled in cases],
        traces=[labelled.case.id for labelled in cases],
        generators=[labelled.generator for labelled in cases],
        answers=[labelled.answer for labelled in cases],
        golds=[labelled.gold for labelled in cases],
        labels=np.asarray(labels, dtype=np.int64),
        p=p,
        verdicts=verdicts,
        come_to=come_to,
    )


def whole_questions(questions: Sequence[str], come_to: Flags) -> Labels:
    """The rows of questions all of whose traces a judge has come to: the choice among fewer would be another.

    Args:
        questions: [N] ids.
        come_to: [N].
    """
    open_ones = {question for question, there in zip(questions, come_to, strict=True) if not there}
    return np.flatnonzero([question not in open_ones for question in questions])
