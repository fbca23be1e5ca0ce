"""NeMo Gym's `/verify`: a rollout in, the same with a reward out. A sample that was not judged is masked and named a failure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Response
from pydantic import TypeAdapter, ValidationError

from serve.callers import Caller
from serve.errors import ServiceError, unfit
from serve.judging import JudgingService
from serve.nemo_gym_schemas import NemoGymVerify
from serve.peer_rewards import item_of, reward_samples
from serve.reward_schemas import Reward
from serve.rewarding import Sought
from serve.rewards import weighted
from verifier.chat_text import answer_text, question_of
from verifier.types import NonEmpty, OptionKey

_OPTIONS = TypeAdapter(dict[OptionKey, NonEmpty])
#: What an earlier attempt may have left in a rollout that is sent again.
_STALE = ("reward", "reward_components", "_ng_failure_class", "_ng_failure_judge_error")
#: States of a response, in OpenAI's words, in which its output is not the policy's last word.
_UNFINISHED = ("failed", "cancelled", "queued", "in_progress")


async def verify_rollout(service: JudgingService, body: NemoGymVerify, asked: Sought, *, caller: Caller) -> Response:
    """The rollout with its reward.

    The question is the field `question` of the data set, if it is a text, or the last message of the user. The options are the
    field `options`, if they can be read as such; the label is `label` or `expected_answer`.

    A response that failed on its way is not what the policy wrote: there is no reward for it either.

    Raises:
        ServiceError: 413 and 422 as for other rewards; 422 also if it cannot be told what the policy wrote. An overloaded
            service is a failed judgment here: NeMo Gym does not come back by itself, and an error would end its run.
    """
    rollout = {name: value for name, value in body.model_dump().items() if name not in _STALE}
    _written(rollout)  # what cannot be sent back is refused before it costs
    given = rollout.get("question")
    question = given if isinstance(given, str) else question_of(_messages(body.responses_create_params.get("input")))
    label = next((rollout[name] for name in ("label", "expected_answer") if isinstance(rollout.get(name), str)), None)
    if (broken := _broken(body.response)) is not None:
        return _failed(rollout, asked, broken)
    said = _said(body.response.get("output"))
    item = item_of(
        "0", question, said, label, options_of(rollout.get("options")), field="responses_create_params.input"
    )
    try:
        [reward] = await reward_samples(service, [item], asked, caller=caller)
    except ServiceError as error:
        if error.status != 503:
            raise
        return _failed(rollout, asked, error.detail)
    if reward.reward is None:
        return _failed(rollout, asked, f"{reward.status}: {reward.detail}")
    return _written({**rollout, "reward": reward.reward, "reward_components": _parts(reward, asked)})


def options_of(given: Any) -> dict[str, str] | None:
    """Options as a mapping of letters to texts, or as a list of such mappings; None for anything else."""
    if isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(one, Mapping) for one in given):
        given = {key: text for one in given for key, text in one.items()}
    try:
        return _OPTIONS.validate_python(given) or None
    except ValidationError:
        return None


def _broken(response: Mapping[str, Any]) -> str | None:
    """Why the policy never came to the end of what it wrote, by no fault of its own; None if it did, or was cut off."""
    if response.get("error") is not None:
        return "the response has an error"
    if (status := response.get("status")) in _UNFINISHED:
        return f"the response is {status}"
    return None


def _said(output: Any) -> str:
    """What the policy wrote. An output that cannot be read must not pass for one in which it wrote nothing."""
    if not isinstance(output, list):
        raise unfit([{"field": "response.output", "expected": "a list of items"}])
    for place, item in enumerate(output):
        if not isinstance(item, Mapping):
            raise unfit([{"field": f"response.output.{place}", "expected": "an object"}])
        if item.get("type", "message") == "message" and not isinstance(item.get("content"), str | list | None):
            raise unfit([{"field": f"response.output.{place}.content", "expected": "a text or a list of parts"}])
    return answer_text(output)


def _messages(given: Any) -> Any:
    return given if isinstance(given, str | list) else ()


def _parts(reward: Reward, asked: Sought) -> dict[str, float]:
    return weighted(reward.components, asked.weights)


def _failed(rollout: dict[str, Any], asked: Sought, why: str) -> Response:
    """HTTP 200, as the protocol wants it. Its 0 is no reward: the mask keeps the sample out of the loss."""
    config = rollout.get("instance_config")
    return _written(
        {
            **rollout,
            "reward": 0.0,
            "reward_components": dict.fromkeys(asked.weights.shares(), 0.0),
            "_ng_failure_class": "judge_failed",
            "_ng_failure_judge_error": why,
            "instance_config": {**(config if isinstance(config, dict) else {}), "mask_sample": True},
        }
    )


def _written(rollout: dict[str, Any]) -> Response:
    try:
        body = json.dumps(rollout, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise unfit([{"field": "body", "expected": "numbers that are finite, and text in Unicode"}]) from error
    return Response(body, media_type="application/json")
