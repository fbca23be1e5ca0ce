"""The words of this project: a question, somebody's reasoning trace, and the judgment of it.

`json_schemas()` exports them for other languages; `medverify schema` prints it.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from retrieval.passage import Hit, Passage

NonEmpty = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True, max_length=200_000)]
#: Letters and digits of any script.
OptionKey = Annotated[str, StringConstraints(pattern=r"^[\p{L}\p{N}]{1,3}$")]


class Question(BaseModel):
    """A medical problem: free text, with lettered options if it is multiple choice."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: NonEmpty
    options: Annotated[dict[OptionKey, NonEmpty] | None, Field(description="Letter to option text.")] = None


class Trace(BaseModel):
    """The reasoning to be judged, as one text or as steps."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: NonEmpty | None = None
    steps: Annotated[list[NonEmpty], Field(fail_fast=True, min_length=1)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "Trace":
        if (self.text is None) == (self.steps is None):
            raise ValueError("give either `text` or `steps`")
        return self

    def render(self) -> str:
        """The trace as the judge reads it; steps are numbered from 1."""
        if self.text is not None:
            return self.text
        return "\n".join(f"Step {number}: {step}" for number, step in enumerate(self.steps or (), start=1))


def plain_question(data: Any) -> Any:
    """What was written, with a question that is a plain text, and options beside it, made a `Question`."""
    if not isinstance(data, dict) or not isinstance(data.get("question"), str):
        return data
    question = {"text": data["question"], **{name: data[name] for name in ("options",) if name in data}}
    return {**{name: data[name] for name in data if name != "options"}, "question": question}


def plain_trace(data: Any) -> Any:
    """What was written, with a trace that is a plain text or a list of steps made a `Trace`."""
    if not isinstance(data, dict) or not isinstance(data.get("trace"), str | list):
        return data
    trace = data["trace"]
    return {**data, "trace": {"text": trace} if isinstance(trace, str) else {"steps": trace}}


def field_as_written(path: Sequence[str | int], case: Any) -> str:
    """The dotted name of a field as the writer of a case knows it, from its path in `Case`.

    `case` is what was written: where a question is a plain text, `question.options` stands beside it as `options`.
    """
    names = list(path)
    written = case if isinstance(case, dict) else {}
    if names[:1] == ["question"] and isinstance(written.get("question"), str):
        names = ["options", *names[2:]] if names[1:2] == ["options"] else ["question"]
    elif names[:1] == ["trace"] and isinstance(written.get("trace"), str | list):
        names = ["trace", *names[2:]]
    return ".".join(map(str, names))


class Case(BaseModel):
    """One thing to judge: a question and a trace. Plain strings are accepted for both."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    question: Question
    trace: Trace

    @model_validator(mode="before")
    @classmethod
    def _from_plain(cls, data: Any) -> Any:
        """Accept `{"id", "question": str, "options"?: {...}, "trace": str | [str]}`, the form that people write."""
        return plain_trace(plain_question(data))

    @property
    def digest(self) -> str:
        """SHA-256 of the content; the id, which says nothing about it, is left out."""
        return hashlib.sha256(self.model_dump_json(exclude={"id"}).encode()).hexdigest()


class EvidencePassage(Passage):
    """A passage as the judge was shown it."""

    score: Annotated[float, Field(description="Similarity under the index's metric.")]
    rank: Annotated[int, Field(ge=1)]

    @classmethod
    def of(cls, hit: Hit) -> Self:
        """What a search found, as evidence."""
        return cls(**hit.passage.model_dump(), score=hit.score, rank=hit.rank)


class Search(BaseModel):
    """One search of an episode and what the judge was shown for it."""

    model_config = ConfigDict(frozen=True)

    query: str
    passages: list[EvidencePassage]
    omitted: Annotated[
        int, Field(ge=0, description="Passages found but left out, lowest ranked first, for want of room.")
    ] = 0
    latency_ms: Annotated[float | None, Field(ge=0)] = None


class Status(StrEnum):
    """Whether there is a judgment at all. Everything but `scored` means: not judged, no number."""

    SCORED = "scored"
    UNPARSEABLE = "unparseable"
    TRUNCATED = "truncated"
    RETRIEVAL_FAILED = "retrieval_failed"
    ENGINE_FAILED = "engine_failed"
    TIMEOUT = "timeout"


#: What may be over when one asks again: an outage or a deadline, not something about the case.
OUTAGES = frozenset({Status.RETRIEVAL_FAILED, Status.ENGINE_FAILED, Status.TIMEOUT})


class StopReason(StrEnum):
    """Why the episode ended."""

    ANSWERED = "answered"  # the policy wrote a complete <answer>
    END_OF_TEXT = "end_of_text"  # the policy fell silent without an answer
    MAX_TURNS = "max_turns"
    MAX_SEARCHES = "max_searches"
    MAX_TOKENS = "max_tokens"
    CONTEXT_FULL = "context_full"
    PROMPT_TOO_LONG = "prompt_too_long"
    DEADLINE = "deadline"
    BAD_QUERY = "bad_query"  # the policy asked for an empty or endless search
    RETRIEVAL_ERROR = "retrieval_error"
    ENGINE_ERROR = "engine_error"


class Usage(BaseModel):
    """What the episode cost, in tokens of the judge's tokenizer."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: Annotated[int, Field(ge=0, description="Instructions, question and trace.")] = 0
    policy_tokens: Annotated[int, Field(ge=0, description="Written by the judge.")] = 0
    environment_tokens: Annotated[int, Field(ge=0, description="Evidence and forced tags.")] = 0
    prefilled_tokens: Annotated[int, Field(ge=0, description="Tokens the engine had to compute before decoding.")] = 0
    cached_tokens: Annotated[int, Field(ge=0, description="Tokens the engine took from its cache.")] = 0


class Judgment(BaseModel):
    """The outcome of judging one case. A failure is never a 0 and never a 0.5: `verdict` and `p_correct` are null then."""

    model_config = ConfigDict(frozen=True)

    id: str
    status: Status
    verdict: Annotated[Literal[0, 1] | None, Field(description="1: free of errors, 0: not, null: not judged.")]
    p_correct: Annotated[float | None, Field(ge=0, le=1, description="p(1) / (p(0) + p(1)) at the verdict position.")]
    p_calibrated: Annotated[
        float | None,
        Field(ge=0, le=1, description="How often such traces are right, by the judge's calibration; null without one."),
    ] = None
    label_mass: Annotated[
        float | None, Field(ge=0, le=1.000001, description="p(0) + p(1): how much the judge meant either label.")
    ]
    forced: Annotated[bool, Field(description="The verdict position was forced, not reached by the policy.")]
    reasoning: Annotated[str, Field(description="What the judge thought: the critique.")]
    searches: list[Search]
    stop_reason: StopReason
    turns: Annotated[int, Field(ge=0)]
    format_score: Annotated[
        float | None,
        Field(
            ge=0, le=1, description="1, 0.25 or 0, see verifier.reward; null where it says nothing about the policy."
        ),
    ]
    detail: Annotated[str, Field(description="For a failure: what went wrong.")] = ""
    usage: Usage
    latency_ms: Annotated[
        float | None,
        Field(
            ge=0,
            description="Wall-clock time; null in runs over files, whose lines never depend on a clock, and where a service "
            "gives a judgment that it had made before.",
        ),
    ]
    seed: int
    case_digest: Annotated[str, Field(description="SHA-256 of the case that was judged.")]
    judge_id: Annotated[str, Field(description="SHA-256 of all that the judgment depends on beside case and seed.")]
    judgment_id: Annotated[
        str | None,
        Field(description="Where a service has written it down: GET /judgments/{judgment_id}; null: nowhere."),
    ] = None

    @model_validator(mode="after")
    def _number_only_if_scored(self) -> "Judgment":
        scored = self.status is Status.SCORED
        if any(scored != (value is not None) for value in (self.verdict, self.p_correct, self.label_mass)):
            raise ValueError("a verdict and probabilities belong to `scored` and to nothing else")
        if self.p_calibrated is not None and not scored:
            raise ValueError("a calibrated probability belongs to `scored` and to nothing else")
        return self

    @classmethod
    def unjudged(cls, case: Case, status: Status, reason: StopReason, detail: str, *, seed: int, judge_id: str) -> Self:
        """What is known of a case whose episode never began."""
        return cls(
            id=case.id,
            status=status,
            verdict=None,
            p_correct=None,
            label_mass=None,
            forced=False,
            reasoning="",
            searches=[],
            stop_reason=reason,
            turns=0,
            format_score=None,
            detail=detail,
            usage=Usage(),
            latency_ms=None,
            seed=seed,
            case_digest=case.digest,
            judge_id=judge_id,
        )

    def without_clock(self) -> "Judgment":
        """The same judgment without the times it took and the place it was written down: the same in every run."""
        searches = [search.model_copy(update={"latency_ms": None}) for search in self.searches]
        return self.model_copy(update={"latency_ms": None, "judgment_id": None, "searches": searches})


def json_schemas() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the types that cross the wire."""
    return {model.__name__: model.model_json_schema() for model in (Case, Question, Trace, Passage, Search, Judgment)}
