"""What `/verify` takes and gives."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Strict, Tag, model_validator
from pydantic.config import JsonDict

from serve.nemo_gym_schemas import NemoGymVerify
from verifier.types import Case, Judgment

_SEED = Field(ge=0, le=2**31 - 1, description="Overrides the service's sampling seed.")
#: In a body, where types are sent: neither a text nor a truth value is a number.
Seed = Annotated[Annotated[int, Strict()] | None, _SEED]
#: In an address, where everything is text.
SeedInAddress = Annotated[int | None, _SEED]

Deadline = Annotated[
    Annotated[float, Strict()] | None,
    Field(
        gt=0,
        allow_inf_nan=False,
        description="Seconds for the request; shortens the service's own deadline, never extends it.",
    ),
]

_EXAMPLE: JsonDict = {
    "id": "case-1",
    "question": "What does warfarin inhibit?",
    "options": {"A": "Vitamin K epoxide reductase", "B": "Thrombin"},
    "trace": ["Warfarin blocks the recycling of vitamin K.", "The answer is A."],
}


class VerifyOne(BaseModel):
    """One case to judge."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    case: Case
    seed: Seed = None
    deadline_s: Deadline = None

    @model_validator(mode="before")
    @classmethod
    def _from_flat(cls, data: Any) -> Any:
        """The case's own fields may stand directly in the body; a missing id becomes `0`."""
        if not isinstance(data, dict):
            return data
        if "case" in data:
            case = data["case"]
            return {**data, "case": {"id": "0", **case}} if isinstance(case, dict) else data
        asked = {name: data[name] for name in ("seed", "deadline_s") if name in data}
        return {**asked, "case": {"id": "0", **{name: data[name] for name in data if name not in asked}}}


class VerifyMany(BaseModel):
    """Several cases, judged independently."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"cases": [_EXAMPLE]}]})

    cases: Annotated[list[Case], Field(fail_fast=True, min_length=1)]
    seed: Seed = None
    deadline_s: Deadline = None

    @model_validator(mode="before")
    @classmethod
    def _number_cases(cls, data: Any) -> Any:
        """A missing id becomes the case's position."""
        if not isinstance(data, dict) or not isinstance(data.get("cases"), list):
            return data
        cases = [{"id": str(i), **case} if isinstance(case, dict) else case for i, case in enumerate(data["cases"])]
        return {**data, "cases": cases}


def _shape(body: Any) -> Literal["one", "many", "nemo_gym"]:
    if isinstance(body, NemoGymVerify) or (isinstance(body, dict) and "responses_create_params" in body):
        return "nemo_gym"
    return "many" if isinstance(body, VerifyMany) or (isinstance(body, dict) and "cases" in body) else "one"


VerifyRequest = Annotated[
    Annotated[VerifyOne, Tag("one")] | Annotated[VerifyMany, Tag("many")] | Annotated[NemoGymVerify, Tag("nemo_gym")],
    Discriminator(_shape),
]


class Judgments(BaseModel):
    """One judgment for each case, in the order of the request."""

    judgments: list[Judgment]


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """The judge is loaded, and how much it has to do."""

    status: Literal["ready"] = "ready"
    cases_in_flight: int
    replicas: Annotated[int, Field(description="Judges that can be asked.")] = 1


class Info(BaseModel):
    """What judges here."""

    judge_id: str
    model: str
    mode: str
    engine: dict[str, str | int | float]
    prompt: str
    prompt_digest: str
    index_digest: str
    version: str
    quality: Annotated[list[dict[str, Any]], Field(description="Measured quality of this judge; empty: not measured.")]
    calibration: Annotated[
        dict[str, Any] | None, Field(description="What `p_calibrated` comes from; null: the judge is not calibrated.")
    ] = None
    coherence_judge_id: Annotated[
        str | None, Field(description="Who judges the coherence of traces; null: nobody here.")
    ] = None
    replicas: Annotated[int, Field(description="Judges that can be asked at the moment; one but in a cluster.")] = 1
    notice: str = "A research tool, not a medical device."
