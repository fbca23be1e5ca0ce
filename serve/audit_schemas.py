"""What the audit log knows of a judgment."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from retrieval.passage import Passage
from serve.evidence import passage_digest
from serve.judgment_ids import PATTERN
from verifier.types import Case, EvidencePassage, Judgment, Search, Status, StopReason, Usage

JudgmentId = Annotated[
    str, Field(pattern=PATTERN, description="In the order of time; also `judgment_id` of the answer.")
]


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgment as it is about to be given."""

    case: Case
    judgment: Judgment
    caller: str  # name of the key
    about: str  # the question that was asked about the trace
    index_digest: str
    cached: bool = False
    request_id: str | None = None


class PassageReference(BaseModel):
    """A passage that the judge was shown."""

    model_config = ConfigDict(frozen=True)

    id: str
    sha256: Annotated[str, Field(description="Of the passage with its title and source: tells whether it was changed.")]
    score: float
    rank: int

    @classmethod
    def of(cls, passage: EvidencePassage) -> Self:
        """The passage without its text."""
        return cls(id=passage.id, sha256=passage_digest(passage), score=passage.score, rank=passage.rank)


class AuditedSearch(BaseModel):
    """One search, without the texts."""

    model_config = ConfigDict(frozen=True)

    query_sha256: str
    passages: list[PassageReference]
    omitted: int

    @classmethod
    def of(cls, search: Search) -> Self:
        """The search as it is kept."""
        passages = [PassageReference.of(passage) for passage in search.passages]
        return cls(query_sha256=sha256(search.query), passages=passages, omitted=search.omitted)


class AuditedTexts(BaseModel):
    """What people and the judge wrote; kept only where `serve.audit.texts` is true."""

    model_config = ConfigDict(frozen=True)

    case: Case
    reasoning: str
    queries: list[str]
    detail: str

    @classmethod
    def of(cls, case: Case, judgment: Judgment) -> Self:
        """The texts around a judgment."""
        queries = [search.query for search in judgment.searches]
        return cls(case=case, reasoning=judgment.reasoning, queries=queries, detail=judgment.detail)


class AuditLine(BaseModel):
    """One judgment that was given. The order of the fields is that of the line in the file: `id` comes first."""

    model_config = ConfigDict(frozen=True)

    id: JudgmentId
    time: Annotated[datetime, Field(description="When it was given, UTC.")]
    request_id: str | None
    caller: Annotated[str, Field(description="Name of the key that asked.")]
    status: Status
    verdict: Literal[0, 1] | None
    p_correct: float | None
    p_calibrated: float | None
    stop_reason: StopReason
    about: Annotated[str, Field(description="The question that was asked about the trace.")]
    cached: Annotated[bool, Field(description="The judgment was made before and taken from the cache.")]
    case_digest: Annotated[str, Field(description="SHA-256 of question, options and trace.")]
    question_sha256: str
    trace_sha256: str
    reasoning_sha256: str
    judge_id: str
    index_digest: str
    seed: int
    turns: int
    searches: list[AuditedSearch]
    usage: Usage
    latency_ms: float | None
    texts: AuditedTexts | None

    @classmethod
    def of(cls, judged: Judged, id: str, time: datetime, *, texts: bool) -> Self:
        """The line for a judgment.

        Args:
            judged: the judgment and who asked for it.
            id: of the line.
            time: when it was given.
            texts: keep what people and the judge wrote.
        """
        case, judgment = judged.case, judged.judgment
        return cls(
            id=id,
            time=time,
            request_id=judged.request_id,
            caller=judged.caller,
            status=judgment.status,
            verdict=judgment.verdict,
            p_correct=judgment.p_correct,
            p_calibrated=judgment.p_calibrated,
            stop_reason=judgment.stop_reason,
            about=judged.about,
            cached=judged.cached,
            case_digest=judgment.case_digest,
            question_sha256=sha256(case.question.model_dump_json()),
            trace_sha256=sha256(case.trace.render()),
            reasoning_sha256=sha256(judgment.reasoning),
            judge_id=judgment.judge_id,
            index_digest=judged.index_digest,
            seed=judgment.seed,
            turns=judgment.turns,
            searches=[AuditedSearch.of(search) for search in judgment.searches],
            usage=judgment.usage,
            latency_ms=judgment.latency_ms,
            texts=AuditedTexts.of(case, judgment) if texts else None,
        )


class ResolvedPassage(PassageReference):
    """A passage that the judge was shown, with its text."""

    passage: Annotated[Passage | None, Field(description="null: no longer kept.")]


class ResolvedSearch(AuditedSearch):
    """One search with the passages it found."""

    passages: list[ResolvedPassage]  # type: ignore[assignment]


class AuditedJudgment(AuditLine):
    """One judgment with its evidence."""

    searches: list[ResolvedSearch]  # type: ignore[assignment]

    @classmethod
    def resolved(cls, line: AuditLine, passages: dict[str, Passage]) -> Self:
        """A line with the passages that were found for it, by digest."""
        fields = line.model_dump()
        for search in fields["searches"]:
            for passage in search["passages"]:
                passage["passage"] = passages.get(passage["sha256"])
        return cls.model_validate(fields)


class JudgmentPage(BaseModel):
    """Judgments, newest first."""

    judgments: list[AuditLine]
    next: Annotated[
        JudgmentId | None,
        Field(
            description="Send it as `before` for what is older, also where this page is short; null: there is nothing older."
        ),
    ]


def sha256(text: str) -> str:
    """SHA-256 of a text, as hex."""
    return hashlib.sha256(text.encode()).hexdigest()
