"""The Healthcare AI GYM: reward functions for its registry, and its trajectories as cases.

    from medverify.trainers import gym
    gym.register()    # into the gym's GRPO_REWARD_REGISTRY: medverify, medverify_accuracy, medverify_coherence

Its functions have TRL's signature. What was not judged is None, as in `medverify.trainers.trl`.
"""

import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from medverify.replies import TraceItem
from medverify.trainers.samples import ColumnError, item_of, tool_step
from medverify.trainers.trl import RewardFunction
from verifier.chat_text import text_of
from verifier.types import Case

RewardFn = Callable[..., list[float | None]]

#: Weights of the gym's five dimensions, as its paper has them. They add up to 0.85; the rest is for cases with a rubric.
FIVE_DIMENSIONS = {"accuracy": 0.25, "process": 0.20, "safety": 0.20, "format": 0.10, "coherence": 0.10}


def accuracy_reward(url: str | None = None, **options: Any) -> RewardFunction:
    """The accuracy dimension: the verifier's probability, or with `accuracy="label"` whether the answer is right.

    Args:
        url: of the service; else MEDVERIFY_URL.
        options: of `medverify.trainers.trl.RewardFunction`. The gym's label column is `solution`.
    """
    return _function(url, "medverify_accuracy", {"accuracy": 1.0, "coherence": 0.0, "format": 0.0}, "accuracy", options)


def coherence_reward(url: str | None = None, **options: Any) -> RewardFunction:
    """The coherence dimension: the judge's answer to whether the text is consistent and comes to a clear conclusion."""
    weights = {"accuracy": 0.0, "coherence": 1.0, "format": 0.0}
    return _function(url, "medverify_coherence", weights, "coherence", options)


def whole_reward(url: str | None = None, **options: Any) -> RewardFunction:
    """The service's whole reward."""
    return _function(url, "medverify", None, None, options)


def composite_reward(parts: Mapping[str, RewardFn], weights: Mapping[str, float] = FIVE_DIMENSIONS) -> RewardFn:
    """The weighted sum of several reward functions; None wherever one of them says None.

    The gym's own composite adds numbers, and cannot take a dimension that was not judged.

    Args:
        parts: dimension to reward function, the gym's own and ours.
        weights: of at least these dimensions; those without a function are left out, and nothing is rescaled.

    Raises:
        ValueError: a dimension has no weight.
    """
    if unknown := parts.keys() - weights.keys():
        raise ValueError(f"no weight for {', '.join(sorted(unknown))}")

    def medverify_composite(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        found = {name: part(completions=completions, **columns) for name, part in parts.items()}
        return [
            _total([(weights[name], values[place]) for name, values in found.items()])
            for place in range(len(completions))
        ]

    return medverify_composite


def register(
    registry: MutableMapping[str, RewardFn] | None = None, url: str | None = None, **options: Any
) -> MutableMapping[str, RewardFn]:
    """Put our reward functions into a registry; the gym's own if None.

    Args:
        registry: name to function.
        url: of the service; else MEDVERIFY_URL.
        options: as for `accuracy_reward`.

    Raises:
        ImportError: no registry is given, and the gym is not installed.
    """
    if registry is None:
        from bioagents.evaluation import grpo_rewards

        theirs: MutableMapping[str, RewardFn] = grpo_rewards.GRPO_REWARD_REGISTRY
        return register(theirs, url, **options)
    for function in (whole_reward(url, **options), accuracy_reward(url, **options), coherence_reward(url, **options)):
        registry[function.__name__] = function
    return registry


def trajectory_case(
    trajectory: Mapping[str, Any], question: str, *, options: Mapping[str, str] | None = None, tools: bool = True
) -> Case:
    """What `BioAgentGymEnv.get_trajectory()` gives, as a case to judge.

    A trajectory does not hold its task: the question comes from the task's `ticket`, or from the first observation.

    Args:
        trajectory: with `conversation_history`, and `task_id` as the case's id.
        question: what the agent was asked.
        options: letter to text.
        tools: show the judge what the environment answered, marked as not the agent's own. Without it, claims that rest on a
            result look unfounded.

    Raises:
        ColumnError: the agent did nothing.
        pydantic.ValidationError: the question is empty, or something too long.
    """
    steps = trajectory_steps(trajectory, tools=tools)
    if not steps:
        raise ColumnError(f"trajectory {trajectory.get('task_id')!r} has no action of the agent to judge")
    case = {"id": str(trajectory.get("task_id") or "0"), "question": question, "trace": steps}
    return Case.model_validate(case if options is None else {**case, "options": dict(options)})


def trajectory_item(
    trajectory: Mapping[str, Any],
    question: str,
    *,
    options: Mapping[str, str] | None = None,
    label: str | None = None,
    tools: bool = True,
) -> TraceItem:
    """The same for `Client.reward`, with the right answer if there is one; raises as `trajectory_case`."""
    case = trajectory_case(trajectory, question, options=options, tools=tools)
    item = item_of(0, case.question.text, case.trace.steps or [], case.question.options, label)
    if isinstance(item, str):
        raise ColumnError(item)
    return item.model_copy(update={"id": case.id})


def trajectory_steps(trajectory: Mapping[str, Any], *, tools: bool = True) -> list[str]:
    """What the agent did, turn after turn, and what the environment answered."""
    steps = list[str]()
    for turn in trajectory.get("conversation_history") or ():
        did, saw = _text(turn.get("agent_action")), _text(turn.get("observation"))
        steps += [did] if did else []
        steps += [tool_step(saw)] if saw and tools and did else []
    return steps


def _function(
    url: str | None,
    name: str,
    weights: Mapping[str, float] | None,
    component: str | None,
    options: Mapping[str, Any],
) -> RewardFunction:
    usual = {"label_column": "solution", "weights": weights, "component": component, "name": name}
    return RewardFunction(url, **(usual | dict(options)))


def _total(parts: Sequence[tuple[float, float | None]]) -> float | None:
    total = 0.0
    for weight, value in parts:
        if value is None:
            return None
        total += weight * value
    return total


def _text(content: Any) -> str:
    """An action or an observation as text; the gym has both as texts, and older recordings as objects."""
    if content is None:
        return ""
    return (text_of(content) if isinstance(content, str | list) else json.dumps(content, ensure_ascii=False)).strip()
