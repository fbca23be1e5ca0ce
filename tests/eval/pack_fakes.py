"""Packs made by hand, and what a judge might say of them."""

import json
from collections.abc import Sequence
from pathlib import Path

from verifier.packs import LabelledCase
from verifier.types import Case, EvidencePassage, Judgment, Search, Status, StopReason, Usage

LETTERS = "ABCD"


def labelled(
    question: int,
    trace: int,
    answer: str | None = "A",
    gold: str | None = "A",
    generator: str = "model",
    text: str = "",
) -> LabelledCase:
    case = Case(
        id=f"q{question}#{trace}",
        question={"text": f"Question {question}?", "options": {letter: f"Option {letter}" for letter in LETTERS}},
        trace=text or f"Reasoning {trace} about {question}. So {answer}.",
    )
    label = None if answer is None or gold is None else int(answer == gold)
    return LabelledCase(case, label, f"q{question}", generator, answer, gold)


def pack(
    answers: Sequence[Sequence[str | None]], gold: str = "A", generators: Sequence[str] = ("model",)
) -> list[LabelledCase]:
    """One question a row; the traces are dealt to the generators in turn."""
    return [
        labelled(question, trace, answer, gold, generators[trace % len(generators)])
        for question, row in enumerate(answers)
        for trace, answer in enumerate(row)
    ]


def judgment(
    of: LabelledCase, p: float | None, searches: Sequence[Search] = (), detail: str = "", critique: str = "I think."
) -> Judgment:
    """A judgment with this p, or one that a deadline kept from being made."""
    return Judgment(
        id=of.case.id,
        status=Status.TIMEOUT if p is None else Status.SCORED,
        verdict=None if p is None else 1 if p > 0.5 else 0,
        p_correct=p,
        label_mass=None if p is None else 0.5,
        forced=p is not None,
        reasoning=critique,
        searches=list(searches),
        stop_reason=StopReason.DEADLINE if p is None else StopReason.ANSWERED,
        turns=2,
        format_score=None,
        detail=detail or ("no verdict within 600 s" if p is None else ""),
        usage=Usage(
            prompt_tokens=100, policy_tokens=20, environment_tokens=30, prefilled_tokens=130, cached_tokens=400
        ),
        latency_ms=None,
        seed=0,
        case_digest=of.case.digest,
        judge_id="j" * 64,
    )


def passage(id: str = "p1", rank: int = 1, **fields: str) -> EvidencePassage:
    return EvidencePassage(
        **{"id": id, "title": "Title", "text": "Text.", "corpus": "c", **fields}, score=0.5, rank=rank
    )


def search(query: str, *passages: EvidencePassage, omitted: int = 0) -> Search:
    return Search(query=query, passages=list(passages), omitted=omitted)


def write_pack(prefix: Path, cases: Sequence[LabelledCase]) -> Path:
    """The pack as files."""
    questions = {one.question_id: one for one in cases}
    rows = {
        "questions": [
            {
                "id": name,
                "question": one.case.question.text,
                "options": one.case.question.options,
                "answer": one.gold,
            }
            for name, one in questions.items()
        ],
        "traces": [
            {
                "qid": one.question_id,
                "trace_id": one.case.id,
                "reasoning": one.case.trace.text,
                "trace_label": one.label,
                "generator": one.generator,
                "pred": one.answer,
                "gold": one.gold,
            }
            for one in cases
        ],
    }
    for part, lines in rows.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        Path(f"{prefix}.{part}.jsonl").write_text(text, encoding="utf-8")
    return prefix
