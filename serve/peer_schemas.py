"""What trainers send and read whose protocols have routes of their own: OpenRLHF and slime."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serve.reward_schemas import Components


class GetReward(BaseModel):
    """OpenRLHF's request. Fields that are not listed are ignored."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "query": ["What does warfarin inhibit?\nIt blocks VKOR. The answer is VKOR."],
                    "prompts": ["What does warfarin inhibit?\n"],
                    "labels": ["VKOR"],
                },
                {"query": [], "prompts": [], "labels": []},
            ]
        }
    )

    query: Annotated[list[str], Field(fail_fast=True, description="Prompt and response, as one text; may be empty.")]
    prompts: Annotated[list[str], Field(fail_fast=True, description="The prompts that the texts begin with.")]
    labels: Annotated[list[Any] | None, Field(description="Right answers, as texts; what is no text is ignored.")] = (
        None
    )

    @model_validator(mode="after")
    def _same_lengths(self) -> Self:
        for name in ("prompts", "labels"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.query):
                raise ValueError(f"{name} has {len(values)} entries, query has {len(self.query)}")
        return self


class GotReward(BaseModel):
    """What OpenRLHF reads: a number for each sample in every list."""

    rewards: Annotated[list[float], Field(description="0..1 each.")]
    scores: Annotated[list[float], Field(description="The same, for its filter of groups.")]
    extra_logs: Annotated[
        dict[str, list[float]],
        Field(description="What accuracy, coherence and format add to each reward; always these keys."),
    ]


class SlimeSample(BaseModel):
    """slime's request: one sample. Fields that are not listed are ignored."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"prompt": "What does warfarin inhibit?", "response": "It blocks VKOR.", "label": "VKOR"},
                {"prompt": [{"role": "user", "content": "What does warfarin inhibit?"}], "response": "It blocks VKOR."},
            ]
        }
    )

    prompt: Annotated[Any, Field(description="A text, or a list of messages with `role` and `content`.")]
    response: str
    label: Annotated[Any, Field(description="The right answer, as a text; what is no text is ignored.")] = None


class SlimeScore(BaseModel):
    """slime's reward, read with `--reward-key score`."""

    score: Annotated[float, Field(ge=0, le=1)]
    components: Components
    judge_id: str | None = None
    coherence_judge_id: str | None = None
