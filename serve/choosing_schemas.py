"""What `/select` takes and gives."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.config import JsonDict

from serve.schemas import Deadline, Seed
from verifier.types import Case, Judgment, NonEmpty, Question, Trace, plain_question, plain_trace

_EXAMPLE: JsonDict = {
    "question": "What does warfarin inhibit?",
    "options": {"A": "Vitamin K epoxide reductase", "B": "Thrombin"},
    "candidates": [
        {"trace": ["Warfarin blocks the recycling of vitamin K.", "The answer is A."]},
        {"id": "sample-2", "trace": "Warfarin binds thrombin.", "answer": "B"},
    ],
    "strategy": "soft",
}


class Candidate(BaseModel):
    """One of several attempts at the question."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str | None, StringConstraints(min_length=1, max_length=512)] = None
    trace: Trace
    answer: Annotated[
        NonEmpty | None,
        Field(description="What it comes to: an option's letter or text, or a text; else it is read from the trace."),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _from_plain(cls, data: Any) -> Any:
        """A trace may be a plain text or a list of steps."""
        return plain_trace(data)


class SelectRequest(BaseModel):
    """Candidates for one question, and how to choose among them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    question: Question
    candidates: Annotated[list[Candidate], Field(fail_fast=True, min_length=1)]
    strategy: Annotated[
        Literal["best_of_n", "hard", "soft", "majority"],
        Field(
            description="best_of_n: the highest p; hard: votes of traces with verdict 1; soft: each votes with its p; majority: "
            "each has one vote, and the judge is not asked."
        ),
    ] = "soft"
    seed: Seed = None
    deadline_s: Deadline = None

    @model_validator(mode="before")
    @classmethod
    def _from_plain(cls, data: Any) -> Any:
        """A question may be a plain text, with options beside it."""
        return plain_question(data)

    @property
    def cases(self) -> list[Case]:
        """What there is to judge; a missing id is the candidate's position."""
        return [
            Case(id=candidate.id or str(place), question=self.question, trace=candidate.trace)
            for place, candidate in enumerate(self.candidates)
        ]


class Vote(BaseModel):
    """What one answer got."""

    answer: str
    weight: Annotated[
        float,
        Field(ge=0, le=1, description="Share of the votes; for best_of_n, of the candidates tied for the highest p."),
    ]
    candidates: Annotated[list[int], Field(description="Positions of those that have a say and gave this answer.")]


class Selected(BaseModel):
    """Which answer the candidates come to, and why."""

    strategy: str
    answer: Annotated[str | None, Field(description="An option's letter, or a text where the question has no options.")]
    chosen: Annotated[
        int | None, Field(ge=0, description="Position of the candidate to keep; null: nothing is chosen.")
    ]
    chosen_id: str | None
    reason: Annotated[str, Field(description="Why nothing is chosen.")] = ""
    votes: Annotated[list[Vote], Field(description="The heaviest first.")]
    tied: Annotated[bool, Field(description="Another answer had as good a claim.")]
    fell_back: Annotated[
        bool, Field(description="No vote had weight, so the judged candidates were counted as by majority.")
    ] = False
    judgments: Annotated[list[Judgment], Field(description="One a candidate, in their order; none for majority.")]
    not_judged: Annotated[int, Field(ge=0, description="Candidates whose judgment failed. They have no say.")]
