"""Judgments to keep, made by hand. Importable from a subprocess as well."""

from serve.audit_schemas import Judged
from verifier.types import Case, EvidencePassage, Judgment, Search, Status, StopReason, Usage

JUDGE_ID = "a" * 64


def case(number: int = 1, trace: str = "It blocks VKOR.") -> Case:
    return Case.model_validate({"id": f"case-{number}", "question": f"Question {number}?", "trace": trace})


def passage(number: int = 1, text: str = "It inhibits VKOR.") -> EvidencePassage:
    return EvidencePassage(id=f"p{number}", title="Warfarin", text=text, source="A book", score=0.5, rank=1)


def judgment(
    number: int = 1, p: float | None = 0.9, judge_id: str = JUDGE_ID, seed: int = 0, size: int = 0
) -> Judgment:
    """A judgment of `case(number)` with this p(1), or one of a case whose engine failed; `size` characters of thought."""
    return Judgment(
        id=f"case-{number}",
        status=Status.ENGINE_FAILED if p is None else Status.SCORED,
        verdict=None if p is None else 1 if p > 0.5 else 0,
        p_correct=p,
        p_calibrated=None if p is None else 0.7,
        label_mass=None if p is None else 0.75,
        forced=True,
        reasoning="The reasoning claims VKOR." + "x" * size,
        searches=[] if p is None else [Search(query="warfarin target", passages=[passage()], latency_ms=3.0)],
        stop_reason=StopReason.ENGINE_ERROR if p is None else StopReason.ANSWERED,
        turns=2,
        format_score=None,
        detail="the server is down" if p is None else "",
        usage=Usage(policy_tokens=24),
        latency_ms=120.0,
        seed=seed,
        case_digest=case(number).digest,
        judge_id=judge_id,
    )


def judged(number: int = 1, p: float | None = 0.9, caller: str = "trainer") -> Judged:
    return Judged(case(number), judgment(number, p), caller, "correctness", "1" * 64, request_id=f"r{number}")
