"""What NeMo Gym sends to `/verify`."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class NemoGymVerify(BaseModel):
    """NeMo Gym's request. All fields come back in the answer."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "responses_create_params": {"input": [{"role": "user", "content": "What does warfarin inhibit?"}]},
                    "response": {
                        "id": "r1",
                        "object": "response",
                        "created_at": 0,
                        "model": "m",
                        "output": [
                            {
                                "type": "message",
                                "role": "assistant",
                                "id": "m1",
                                "status": "completed",
                                "content": [{"type": "output_text", "text": "It blocks VKOR.", "annotations": []}],
                            }
                        ],
                        "parallel_tool_calls": True,
                        "tool_choice": "auto",
                        "tools": [],
                    },
                }
            ]
        },
    )

    responses_create_params: Annotated[dict[str, Any], Field(description="`input` ends in the user's question.")]
    response: Annotated[dict[str, Any], Field(description="`output` holds what the policy said.")]


class NemoGymRewarded(BaseModel):
    """The rollout as it was sent, with its reward."""

    model_config = ConfigDict(extra="allow")

    reward: Annotated[
        float, Field(description="0 also where nothing was judged: `instance_config.mask_sample` says so.")
    ]
    reward_components: dict[str, float]
