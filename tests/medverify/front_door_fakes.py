"""Judgments made by hand."""

from verifier.types import Case, EvidencePassage, Judgment, Search, Status, StopReason, Usage


def judgment(id: str = "c1", p: float | None = 0.9, query: str = "warfarin", title: str = "Warfarin") -> Judgment:
    """A judgment with this p(1), or one of a case whose engine failed."""
    passage = EvidencePassage(id="b1", title=title, text="It inhibits VKOR. " * 30, source="A book", score=0.5, rank=1)
    return Judgment(
        id=id,
        status=Status.ENGINE_FAILED if p is None else Status.SCORED,
        verdict=None if p is None else 1 if p > 0.5 else 0,
        p_correct=p,
        label_mass=None if p is None else 0.75,
        forced=True,
        reasoning="The reasoning claims VKOR.",
        searches=[] if p is None else [Search(query=query, passages=[passage])],
        stop_reason=StopReason.ENGINE_ERROR if p is None else StopReason.ANSWERED,
        turns=2,
        format_score=None,
        detail="the server is [down]" if p is None else "",
        usage=Usage(policy_tokens=24),
        latency_ms=None,
        seed=0,
        case_digest=Case(id=id, question="q", trace="r").digest,
        judge_id="j",
    )
