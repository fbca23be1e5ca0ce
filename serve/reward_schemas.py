"""What `/reward` takes and gives."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticKnownError

from serve.schemas import Deadline, Seed
from verifier.types import Case, Status

Id = Annotated[str, Field(min_length=1, max_length=512)]
Accuracy = Literal["verifier", "label"]
Share = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Part = Annotated[float | None, Field(ge=0, le=1)]

_TRACE: JsonDict = {
    "kind": "trace",
    "id": "t1",
    "question": "What does warfarin inhibit?",
    "options": {"A": "Vitamin K epoxide reductase", "B": "Thrombin"},
    "trace": ["Warfarin blocks the recycling of vitamin K.", "The answer is A."],
    "label": "A",
}
_JUDGE: JsonDict = {
    "kind": "judge",
    "id": "j1",
    "response": "<think>Every step is right.</think><answer>1</answer>",
    "label": 1,
}


class Weights(BaseModel):
    """How much each part counts. They are divided by their sum; what is left out counts nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    accuracy: Share = 0.0
    coherence: Share = 0.0
    format: Share = 0.0

    @model_validator(mode="after")
    def _something(self) -> "Weights":
        if not self.accuracy + self.coherence + self.format > 0:
            raise ValueError("at least one weight must be above 0")
        return self

    def shares(self) -> dict[str, float]:
        """Each weight divided by the sum of all."""
        total = self.accuracy + self.coherence + self.format
        return {
            "accuracy": self.accuracy / total,
            "coherence": self.coherence / total,
            "format": self.format / total,
        }


#: Of these parts in the Healthcare AI GYM's reward, which has others beside them.
DEFAULT_WEIGHTS = Weights(accuracy=0.25, coherence=0.10, format=0.10)


class TraceItem(BaseModel):
    """A trace to be rewarded. The fields of the case stand beside `kind`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_TRACE]})

    kind: Literal["trace"] = "trace"
    case: Case
    label: Annotated[
        str | None, Field(max_length=10_000, description="The right answer: an option's letter or text; or words.")
    ] = None
    seed: Seed = None

    @model_validator(mode="before")
    @classmethod
    def _from_flat(cls, data: Any) -> Any:
        """The case's own fields may stand directly in the item."""
        if not isinstance(data, dict) or "case" in data:
            return data
        own = {name: data[name] for name in ("kind", "label", "seed") if name in data}
        return {**own, "case": {name: data[name] for name in data if name not in own}}


def _whole(label: Any) -> Any:
    """Neither `true` nor 1.0 is a label, though both are equal to one."""
    if type(label) is not int:
        raise PydanticKnownError("int_type")
    return label


class JudgeItem(BaseModel):
    """What a policy that learns to judge wrote about a trace whose label is known."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_JUDGE]})

    kind: Literal["judge"]
    id: Id
    response: Annotated[str, Field(max_length=200_000, description="Its own text, all turns joined, no evidence.")]
    label: Annotated[
        Literal[0, 1], BeforeValidator(_whole), Field(description="1: the trace is free of errors; 0: it is not.")
    ]


def _kind(item: Any) -> str:
    return str(item.get("kind", "trace")) if isinstance(item, dict) else getattr(item, "kind", "trace")


RewardItem = Annotated[
    Annotated[TraceItem, Tag("trace")] | Annotated[JudgeItem, Tag("judge")],
    Discriminator(_kind),
]


class RewardRequest(BaseModel):
    """What to reward, and what a reward is made of."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"items": [_TRACE, _JUDGE], "seed": 0}]})

    items: Annotated[list[RewardItem], Field(fail_fast=True, min_length=1)]
    weights: Annotated[Weights, Field(description="For traces.")] = DEFAULT_WEIGHTS
    accuracy: Annotated[
        Accuracy, Field(description="verifier: the judge's p(1); label: whether the final answer is the label.")
    ] = "verifier"
    seed: Seed = None
    deadline_s: Deadline = None

    @model_validator(mode="before")
    @classmethod
    def _number_items(cls, data: Any) -> Any:
        """A missing id becomes the item's position; weights that are null are the default ones."""
        if not isinstance(data, dict) or not isinstance(data.get("items"), list):
            return data
        items = [_named(item, str(place)) for place, item in enumerate(data["items"])]
        unset = {name for name in ("weights", "accuracy") if name in data and data[name] is None}
        return {**{name: value for name, value in data.items() if name not in unset}, "items": items}


def _named(item: Any, name: str) -> Any:
    if not isinstance(item, dict):
        return item
    if isinstance(item.get("case"), dict):
        return {**item, "case": {"id": name, **item["case"]}}
    return {"id": name, **item} if "case" not in item else item


class Components(BaseModel):
    """The parts of a reward, 0..1 each. All keys are always there; null: not known, or not asked for."""

    model_config = ConfigDict(frozen=True)

    accuracy: Annotated[Part, Field(description="What `accuracy` asks for: `verifier` or `label_match`.")] = None
    verifier: Annotated[Part, Field(description="The judge's p(1) that the trace is free of errors.")] = None
    label_match: Annotated[Part, Field(description="1 if the final answer is the label, else 0.")] = None
    coherence: Annotated[Part, Field(description="The judge's p(1) that the trace holds together.")] = None
    format: Annotated[Part, Field(description="Whether a final answer can be read; R_f for what a judge wrote.")] = None


NO_LABEL = "no_label"


class Reward(BaseModel):
    """The reward of one item, or why there is none."""

    model_config = ConfigDict(frozen=True)

    id: str
    status: Annotated[
        Status | Literal["no_label"], Field(description="`scored`; whatever else it says, there is no reward.")
    ]
    reward: Annotated[Part, Field(description="0..1; null: not judged.")]
    components: Components
    detail: str = ""
    judge_id: Annotated[str | None, Field(description="Who gave `verifier`; null: nobody was asked.")] = None
    coherence_judge_id: Annotated[str | None, Field(description="Who gave `coherence`; null: nobody was asked.")] = None
    judgment_id: Annotated[
        str | None, Field(description="Where critique and evidence are: GET /judgments/{id}; null: nowhere.")
    ] = None
    coherence_judgment_id: Annotated[str | None, Field(description="The same of the judgment of coherence.")] = None

    @model_validator(mode="after")
    def _number_only_if_scored(self) -> "Reward":
        if (self.status is Status.SCORED) != (self.reward is not None):
            raise ValueError("a reward belongs to `scored` and to nothing else")
        return self


class Rewards(BaseModel):
    """One reward for each item, in the order of the request."""

    version: Annotated[
        Literal["1"], Field(description="Raised whenever the same judgments could come to another number.")
    ] = "1"
    rewards: list[Reward]
