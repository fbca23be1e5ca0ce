"""What the service sends and takes beside cases and judgments, as its clients read and write it.

Fields that are new to a client are ignored, so that an older client reads a newer service. A number stands only where
something was judged; an answer that says otherwise is refused, not believed.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from verifier.types import Case, Judgment, NonEmpty, OptionKey

Strategy = Literal["best_of_n", "hard", "soft", "majority"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
COMPONENTS = ("accuracy", "verifier", "label_match", "coherence", "format")  # of a reward; all of them, always


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Told(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TraceItem(_Sent):
    """A trace to be rewarded: judged by the verifier, and compared with the label where there is one."""

    kind: Literal["trace"] = "trace"
    id: str | None = None
    question: NonEmpty
    options: dict[OptionKey, NonEmpty] | None = None
    trace: NonEmpty | Annotated[list[NonEmpty], Field(min_length=1)]
    label: Annotated[str | None, Field(description="The right answer: an option's letter, or a text.")] = None
    seed: int | None = None


class JudgeItem(_Sent):
    """What a policy that learns to judge wrote, to be rewarded by the label of the trace it judged. Needs no model."""

    kind: Literal["judge"] = "judge"
    id: str | None = None
    response: str
    label: Literal[0, 1]


RewardItem = TraceItem | JudgeItem


class Reward(_Told):
    """The reward of one item, or why there is none."""

    id: str
    status: Annotated[str, Field(description="`scored`; whatever else it says, there is no reward.")]
    reward: Finite | None
    components: Annotated[
        dict[str, Finite | None],
        Field(description="accuracy, verifier, label_match, coherence, format; null: not known or not asked for."),
    ]
    detail: str = ""
    judge_id: str | None = None

    @property
    def judged(self) -> bool:
        """Whether there is a reward."""
        return self.reward is not None

    @model_validator(mode="after")
    def _number_only_if_scored(self) -> Self:
        if (self.status == "scored") != (self.reward is not None):
            raise ValueError("a reward belongs to `scored` and to nothing else")
        return self


class Rewards(_Told):
    """What `/reward` answers."""

    rewards: list[Reward]


class Judgments(_Told):
    """What `/verify` answers for several cases."""

    judgments: list[Judgment]


class Candidate(_Sent):
    """One of several answers to a question, with the reasoning that led to it."""

    id: str | None = None
    trace: NonEmpty | Annotated[list[NonEmpty], Field(min_length=1)]
    answer: Annotated[str | None, Field(description="If it is not given, the service reads it from the trace.")] = None


class Vote(_Told):
    """What one answer got."""

    answer: str
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    candidates: Annotated[list[int], Field(description="Places of the candidates that gave this answer, from 0.")]


class Selected(_Told):
    """Which answer several candidates come to."""

    strategy: str
    answer: str | None
    chosen: Annotated[int | None, Field(ge=0, description="Place of the chosen candidate, from 0.")]
    votes: list[Vote]
    tied: Annotated[bool, Field(description="Another answer had as good a claim.")]
    fell_back: Annotated[bool, Field(description="No vote had weight, and the majority was taken.")] = False
    reason: Annotated[str, Field(description="Why nothing is chosen.")] = ""
    judgments: list[Judgment]
    not_judged: Annotated[int, Field(ge=0, description="Candidates without a judgment; they have no say.")]


class Ranked(_Told):
    """A document's place."""

    index: Annotated[int, Field(ge=0)]
    relevance_score: Finite


class Ranking(_Told):
    """What `/v1/rerank` answers, best first."""

    results: list[Ranked]


class Job(_Told):
    """A long batch that the service works on."""

    id: str
    status: str
    total: Annotated[int, Field(ge=0)]
    done: Annotated[int, Field(ge=0)]
    failed: Annotated[int, Field(ge=0, description="Of those that are done, cases that were not judged.")] = 0
    waiting_for: Annotated[str | None, Field(description="Why it does not get on; null: it does.")] = None
    seconds_left: Annotated[float | None, Field(ge=0, description="Estimated from its pace; null: not known.")] = None

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status not in ("queued", "running")


class JobResult(Judgment):
    """A judgment of a job."""

    index: Annotated[int, Field(ge=0, description="Place of its case among those that were handed in, from 0.")]


class Jobs(_Told):
    """What `GET /jobs` answers."""

    jobs: list[Job]


class ServiceInfo(BaseModel):
    """Who judges there. Whatever else the service tells is kept as extra fields."""

    model_config = ConfigDict(extra="allow", frozen=True)

    judge_id: str
    model: str
    version: str


def case_of(given: Any, place: int) -> Case:
    """A case from what a caller gave: a `Case`, or a mapping as in a file of cases; a missing id is its place.

    Raises:
        pydantic.ValidationError: it is no case.
    """
    if isinstance(given, Case):
        return given
    return Case.model_validate({"id": str(place), **given})
