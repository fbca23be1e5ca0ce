"""All figures of one pack."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.columns import UNLABELLED, Columns, join, whole_questions
from eval.evaluation.budgets import budgets
from eval.evaluation.conduct import agreement, conduct, cost, failures
from eval.evaluation.examples import examples
from eval.evaluation.paired import differences
from eval.evaluation.scorers import Scorer, baselines, calibrated, judge_vote
from eval.evaluation.selection import selection_table, votes
from eval.evaluation.verification import curves, verification
from eval.evidence import Key
from eval.metrics import Labels
from eval.report.schema import Composition, PackReport, Paired
from verifier.packs import LabelledCase
from verifier.types import Judgment

ALL, UNNAMED = "all generators", "unnamed generator"


@dataclass(frozen=True, slots=True)
class Judged:
    """What one judge made of a pack."""

    scorer: str
    seed: int | None  # None: not one of the seeds whose agreement is looked at
    judgments: Sequence[Judgment]
    seconds: float | None = None  # by trace
    missing_passages: Sequence[Key] | None = None  # those that are not in the index; None: not checked


def evaluate(
    name: str, cases: Sequence[LabelledCase], judged: Sequence[Judged] = (), fitted_on: Collection[str] = ()
) -> PackReport:
    """Measure the judges on the pack, with the baselines beside them.

    Of a run that is not finished only what the judge has come to is measured: traces, and of choices among them whole questions.
    All that stands beside it is measured on the same; another judge that has not come to all of these questions chooses nothing.

    Args:
        name: of the pack.
        cases: its traces.
        judged: by the judge first, then by its variants; nothing for what traces are worth without a judge.
        fitted_on: digests of the questions that the judge's calibration was fitted on, which would flatter it.

    Raises:
        ValueError: there are no traces, or judgments that are not of them.
    """
    if not cases:
        raise ValueError(f"{name}: no trace to evaluate")
    plain = join(cases)
    columns = [join(cases, one.judgments) for one in judged]
    by_seed = {one.seed: own for one, own in zip(judged, columns, strict=True) if one.seed is not None}
    judges = [
        Scorer(one.scorer, own.p, own.verdicts, own.come_to, is_judge=True)
        for one, own in zip(judged, columns, strict=True)
        if one.seed is None or own is columns[0]
    ]
    if len(by_seed) > 1:
        judges.insert(1, judge_vote(by_seed))
    scorers = [*judges, *baselines(plain, [labelled.case.trace.render() for labelled in cases])]
    remade = [
        calibrated(one.scorer, cases, one.judgments, fitted_on)
        for one in judged
        if one.seed is None or one is judged[0]
    ]
    calibrations = [scorer for scorer in remade if scorer is not None]
    asked = judges[0].come_to if judges else np.ones(len(plain), dtype=np.bool_)
    traces, whole = np.flatnonzero(asked), whole_questions(plain.questions, asked)
    choosing = [scorer for scorer in scorers if scorer.come_to[whole].all()]
    groups = generators(plain)
    questions = dict(zip(plain.traces, plain.questions, strict=True))
    return PackReport(
        name=name,
        composition=_composition(plain, plain.take(whole) if judges else None),
        votes=[votes(plain.take(rows), group) for group, rows in _within(groups, whole).items()],
        verification=[
            verification(plain.take(rows), group, scorer.take(rows))
            for group, rows in _within(groups, traces).items()
            for scorer in [*scorers, *calibrations]
        ],
        paired=[
            Paired(first=judges[0].name, second=other.name, rows=differences(plain, judges[0], other))
            for other in scorers[1:]
            if judges
        ],
        selection=[
            row
            for group, rows in _within(groups, whole).items()
            for row in selection_table(plain.take(rows), group, [scorer.take(rows) for scorer in choosing])
        ],
        curves=[
            drawn
            for scorer in [*scorers, *calibrations]
            if (drawn := curves(plain.take(traces), scorer.take(traces))) is not None
        ],
        budgets=budgets(plain.take(whole), [judge.take(whole) for judge in judges[:1]]),
        conduct=[conduct(one.scorer, one.judgments, questions, one.missing_passages) for one in judged],
        cost=[paid for one in judged if (paid := cost(one.scorer, one.judgments, one.seconds)) is not None],
        agreement=agreement(by_seed),
        failures=[failure for one in judged for failure in failures(one.scorer, one.judgments)],
        examples=examples(cases, judged[0].judgments) if judged else [],
    )


def generators(columns: Columns) -> dict[str, Labels]:
    """Rows by who wrote the trace, all together first; only one group where there is only one author."""
    names = [name or UNNAMED for name in columns.generators]
    found = {name: np.flatnonzero([name == own for own in names]) for name in dict.fromkeys(names)}
    return found if len(found) == 1 else {ALL: np.arange(len(names)), **found}


def _within(groups: Mapping[str, Labels], rows: Labels) -> dict[str, Labels]:
    """Of each group the rows that are among these."""
    return {name: np.intersect1d(own, rows) for name, own in groups.items()}


def _composition(columns: Columns, come_to: Columns | None) -> Composition:
    golds = dict(zip(columns.questions, columns.golds, strict=True))
    return Composition(
        questions=len(golds),
        traces=len(columns),
        labelled=int((columns.labels != UNLABELLED).sum()),
        right=int((columns.labels == 1).sum()),
        unreadable=sum(answer is None for answer in columns.answers),
        at_odds=sum(
            label != UNLABELLED and gold is not None and label != int(answer == gold)
            for label, answer, gold in zip(columns.labels.tolist(), columns.answers, columns.golds, strict=True)
        ),
        without_gold=sum(gold is None for gold in golds.values()),
        come_to=None if come_to is None else len(set(come_to.questions)),
        generators=dict(Counter(name or UNNAMED for name in columns.generators)),
    )
