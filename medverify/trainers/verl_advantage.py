"""verl: group advantages that leave out samples without a score. Registered as `medverify_grpo` where verl loads this module:

VERL_USE_EXTERNAL_MODULES=medverify.trainers.verl_advantage    algorithm.adv_estimator=medverify_grpo
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

NAME = "medverify_grpo"
_EPSILON = 1e-6  # verl's own


def judged_advantage(
    token_level_rewards: "Tensor", response_mask: "Tensor", index: Sequence[Any], config: Any = None, **_: Any
) -> "tuple[Tensor, Tensor]":
    """GRPO's advantage over the judged samples of each group; 0 for the others and where a group has fewer than two.

    With all samples judged it is verl's `compute_grpo_outcome_advantage`, divided by the standard deviation unless
    `algorithm.norm_adv_by_std_in_grpo` is false (Dr.GRPO).

    Args:
        token_level_rewards: [batch, length]; NaN anywhere in a row means that the sample was not judged.
        response_mask: [batch, length]; 1 for the policy's own tokens.
        index: [batch] which group a sample belongs to.
        config: verl's `algorithm` section.

    Returns:
        Advantages and returns, [batch, length] both, the same.
    """
    divides = True if config is None else config.get("norm_adv_by_std_in_grpo", True)
    scores_B = token_level_rewards.sum(dim=-1)
    advantages_B = scores_B.new_zeros(scores_B.shape)
    groups = defaultdict[Any, list[int]](list)
    for row, judged in enumerate(scores_B.isfinite().tolist()):
        if judged:
            groups[index[row]].append(row)
    for rows in groups.values():
        if len(rows) > 1:
            scores_G = scores_B[rows]
            centred_G = scores_G - scores_G.mean()
            advantages_B[rows] = centred_G / (scores_G.std() + _EPSILON) if divides else centred_G
    spread = advantages_B.unsqueeze(-1) * response_mask
    return spread, spread


def register() -> None:
    """Make `algorithm.adv_estimator=medverify_grpo` known to verl in this process."""
    from verl.trainer.ppo.core_algos import register_adv_est

    register_adv_est(NAME)(judged_advantage)


if "verl" in sys.modules:  # verl is loading its external modules
    register()
