"""Judged traces by question, in rectangular arrays: what selection is measured on.

Axes: Q questions, M the most traces that any question has, N rows of a file, one a trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.metrics import Floats, Labels

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The traces of each question and what a judge said of them.

    Raises:
        ValueError: shapes that do not fit together, or values out of range.
    """

    answers_QM: Labels  # small numbers from 0, a code for each answer of that question; -1 unreadable or no trace
    present_QM: Flags  # whether there is a trace; questions may have fewer than M
    p_QM: Floats  # probability that the trace is right; NaN not judged
    verdicts_QM: Labels  # 1 or 0; -1 not judged
    gold_Q: Labels  # code of the right answer, which need not be among those given

    def __post_init__(self) -> None:
        shape = self.answers_QM.shape
        if len(shape) != 2 or any(a.shape != shape for a in (self.present_QM, self.p_QM, self.verdicts_QM)):
            raise ValueError("answers, presence, probabilities and verdicts are arrays of one shape [Q, M]")
        if self.gold_Q.shape != shape[:1] or (self.gold_Q < 0).any():
            raise ValueError("every question has a right answer, from 0")
        if not (np.isnan(self.p_QM) | ((self.p_QM >= 0) & (self.p_QM <= 1))).all():
            raise ValueError("a probability is a number from 0 to 1, or NaN where there is no judgment")
        if not np.isin(self.verdicts_QM, (-1, 0, 1)).all() or (self.answers_QM < -1).any():
            raise ValueError("a verdict is 0, 1 or -1 where there is no judgment; an answer is -1 or more")

    @property
    def counts(self) -> Labels:
        """[Q] How many traces each question has, readable or not."""
        counts_Q: Labels = self.present_QM.sum(axis=1, dtype=np.int64)
        return counts_Q

    @property
    def readable(self) -> Flags:
        """[Q, M] Whether there is a trace with an answer."""
        return self.present_QM & (self.answers_QM >= 0)

    @property
    def right(self) -> Flags:
        """[Q, M] Whether there is a trace with the right answer."""
        right_QM: Flags = self.readable & (self.answers_QM == self.gold_Q[:, None])
        return right_QM


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of a file as candidates, and the way back."""

    candidates: Candidates
    questions: list[str]  # [Q] ids, in the order in which the rows first name them
    rows_QM: Labels  # row of each trace, -1 where there is none

    def spread(self, column_N: Floats) -> Floats:
        """A value a row as [Q, M]; NaN where there is no trace."""
        return np.where(self.rows_QM >= 0, column_N[self.rows_QM], np.nan)

    def column(self, values_QM: Floats, rows: int) -> Floats:
        """The reverse: [N] for a file of so many rows; NaN for rows that belong to no question here."""
        column_N = np.full(rows, np.nan)
        present_QM = self.rows_QM >= 0
        column_N[self.rows_QM[present_QM]] = values_QM[present_QM]
        return column_N


def gather(
    questions: Sequence[str], answers: Sequence[str | None], golds: Sequence[str | None], p: Floats, verdicts: Labels
) -> Gathered:
    """Bring together the rows of each question, which need not be neighbours. A question without a gold answer is left out.

    Args:
        questions: [N] ids.
        answers: [N] as the traces give them; None where unreadable.
        golds: [N] the right answer of the row's question; None where it is not known.
        p: [N] float64, NaN not judged.
        verdicts: [N] int64, -1 not judged.

    Raises:
        ValueError: columns of unequal length, or a question with two gold answers.
    """
    members: dict[str, list[int]] = {}
    right: dict[str, str] = {}
    for row, (question, _, gold, _, _) in enumerate(zip(questions, answers, golds, p, verdicts, strict=True)):
        members.setdefault(question, []).append(row)
        if gold is not None and right.setdefault(question, gold) != gold:
            raise ValueError(f"question {question!r} has two right answers: {right[question]!r} and {gold!r}")
    kept = [question for question in members if question in right]
    rows_QM = np.full((len(kept), max((len(members[question]) for question in kept), default=0)), -1, dtype=np.int64)
    answers_QM, gold_Q = np.full_like(rows_QM, -1), np.empty(len(kept), dtype=np.int64)
    for index, question in enumerate(kept):
        rows = members[question]
        given = {answers[row] for row in rows} | {right[question]}
        codes = {answer: code for code, answer in enumerate(sorted(answer for answer in given if answer is not None))}
        rows_QM[index, : len(rows)] = rows
        answers_QM[index, : len(rows)] = [-1 if (answer := answers[row]) is None else codes[answer] for row in rows]
        gold_Q[index] = codes[right[question]]
    present_QM = rows_QM >= 0
    p_QM = np.where(present_QM, p[rows_QM], np.nan)
    verdicts_QM = np.where(present_QM, verdicts[rows_QM], -1)
    return Gathered(Candidates(answers_QM, present_QM, p_QM, verdicts_QM, gold_Q), kept, rows_QM)
