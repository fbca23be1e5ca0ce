"""What `/jobs` takes and gives."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serve.schemas import Seed
from verifier.types import Case, Status


class JobRequest(BaseModel):
    """Cases to be judged in the background."""

    model_config = ConfigDict(extra="forbid")

    cases: Annotated[list[Case], Field(fail_fast=True, min_length=1)]
    seed: Seed = None

    @model_validator(mode="before")
    @classmethod
    def _number_cases(cls, data: Any) -> Any:
        """A missing id becomes the case's position."""
        if not isinstance(data, dict) or not isinstance(data.get("cases"), list):
            return data
        return {**data, "cases": [numbered(case, place) for place, case in enumerate(data["cases"])]}


def numbered(case: Any, place: int) -> Any:
    """What was written of a case, with its position for an id if it has none."""
    return {"id": str(place), **case} if isinstance(case, dict) else case


class JobState(BaseModel):
    """How far a job is."""

    id: str
    status: Annotated[
        Literal["queued", "running", "done", "cancelled"],
        Field(description="queued: none of its cases was begun yet. done: each case has its result."),
    ]
    total: Annotated[int, Field(ge=1, description="Cases.")]
    done: Annotated[int, Field(ge=0, description="Cases that have a result.")]
    failed: Annotated[int, Field(ge=0, description="Of these, cases that were not judged.")]
    counts: Annotated[dict[Status, int], Field(description="Results by status.")]
    waiting_for: Annotated[
        str | None, Field(description="Why it does not get on at the moment; it goes on by itself. Null: it does.")
    ] = None
    seconds_left: Annotated[
        float | None, Field(ge=0, description="Estimated from its pace since the service started; null: not known.")
    ] = None
    seed: int
    judge_id: str
    created: datetime
    ended: datetime | None = None
    deleted_after: Annotated[
        datetime | None,
        Field(description="When an ended job is deleted with its cases and results; null: not yet known."),
    ] = None


class JobStates(BaseModel):
    """Jobs, the newest first."""

    jobs: list[JobState]
