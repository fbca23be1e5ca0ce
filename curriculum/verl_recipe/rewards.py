"""verl's custom reward function: the reward of an episode of `agent_loop`, which knows how it ended.

    reward.custom_reward_function.path=pkg://curriculum.verl_recipe.rewards  reward.custom_reward_function.name=compute_score

Nothing is decoded or parsed again here: verl's reward managers decode the whole response, evidence included, and only the
policy's own text may speak for it. Episodes that failed for reasons outside the policy never come here: the agent loop gives
verl no trajectory for them.
"""

from collections.abc import Mapping
from typing import Any

OUTCOME = "medverify"  # key of an episode's outcome among the extra fields of verl's agent loops

#: What every sample has, in this order: verl makes its arrays from the keys of one.
KEYS = ("score", "acc", "format", "answered", "searches", "turns", "policy_tokens")


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """The reward R = R_c x R_f of one episode, with its parts.

    Args:
        data_source: not used.
        solution_str: not used, see above.
        ground_truth: not used; the agent loop has compared with it.
        extra_info: of the data set, with the agent loop's extra fields.

    Returns:
        `KEYS`, all floats: the reward; whether the verdict is the gold label; the format score; whether the episode ended
        with an answer; searches, turns and tokens of the policy.

    Raises:
        ValueError: the sample is not of this agent loop.
    """
    outcome = (extra_info or {}).get(OUTCOME)
    if outcome is None:
        raise ValueError(f"extra_info has no {OUTCOME!r}: rollout.agent.default_agent_loop must be medverify_judge")
    return {key: float(outcome[key]) for key in KEYS}
