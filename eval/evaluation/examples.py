"""Judgments worth looking at, of every kind of outcome."""

from collections.abc import Mapping, Sequence

from eval.report.schema import Example, Query, Shown
from verifier.packs import LabelledCase
from verifier.types import Judgment, Search

FALSE_PASS, FALSE_ALARM = "wrong, passed", "right, refused"
TRUE_PASS, TRUE_ALARM = "right, passed", "wrong, refused"
NOT_JUDGED = "not judged"
_KINDS: Mapping[tuple[int | None, int | None], str] = {
    (0, 1): FALSE_PASS,
    (1, 0): FALSE_ALARM,
    (1, 1): TRUE_PASS,
    (0, 0): TRUE_ALARM,
}
_ORDER = (FALSE_PASS, FALSE_ALARM, TRUE_PASS, TRUE_ALARM, NOT_JUDGED)


def examples(cases: Sequence[LabelledCase], judgments: Sequence[Judgment], per_kind: int = 3) -> list[Example]:
    """The surest judgments of each kind, one a question; mistakes first. Of failures, the first in the file.

    Args:
        cases: of the pack; every judgment's is among them.
        judgments: of one judge.
        per_kind: how many of each kind.
    """
    known = {labelled.case.id: labelled for labelled in cases}
    found: dict[str, list[tuple[LabelledCase, Judgment]]] = {kind: [] for kind in _ORDER}
    for judgment in judgments:
        labelled = known[judgment.id]
        kind = NOT_JUDGED if judgment.verdict is None else _KINDS.get((labelled.label, judgment.verdict))
        if kind is not None:  # an unlabelled trace is neither right nor wrong
            found[kind].append((labelled, judgment))
    chosen = []
    for kind, pairs in found.items():
        questions = set[str]()
        for labelled, judgment in sorted(pairs, key=lambda pair: -_sureness(pair[1])):
            if labelled.question_id not in questions and len(questions) < per_kind:
                questions.add(labelled.question_id)
                chosen.append(_example(kind, labelled, judgment))
    return chosen


def _sureness(judgment: Judgment) -> float:
    return 0.0 if judgment.p_correct is None else abs(judgment.p_correct - 0.5)


def _example(kind: str, labelled: LabelledCase, judgment: Judgment) -> Example:
    question = labelled.case.question
    return Example(
        kind=kind,
        trace=labelled.case.id,
        generator=labelled.generator,
        question=question.text,
        options=question.options or {},
        gold=labelled.gold,
        answer=labelled.answer,
        label=labelled.label,
        reasoning=labelled.case.trace.render(),
        critique=judgment.reasoning,
        searches=[_query(search) for search in judgment.searches],
        status=judgment.status.value,
        detail=judgment.detail,
        verdict=judgment.verdict,
        p=judgment.p_correct,
        p_calibrated=judgment.p_calibrated,
    )


def _query(search: Search) -> Query:
    return Query(
        query=search.query,
        omitted=search.omitted,
        passages=[
            Shown(
                rank=passage.rank,
                id=passage.id,
                title=passage.title,
                text=passage.text,
                source=passage.source,
                score=passage.score,
            )
            for passage in search.passages
        ],
    )
