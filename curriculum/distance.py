"""How far a policy has come from where it started."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from curriculum.policy.policy import Policy
from curriculum.policy.rows import Row, rows
from curriculum.rollouts import Rollout


@torch.no_grad()
def kl_to(policy: Policy, start: Mapping[str, Tensor], rollouts: Sequence[Rollout]) -> float | None:
    """KL(policy || start) per token of the policy, in nats: the k3 estimate (Schulman 2020) over what the policy wrote.

    Args:
        start: trained weights as `Policy.state` gives them.
        rollouts: drawn from the policy as it is now.

    Returns:
        None if nothing was written.
    """
    laid = [
        row
        for _, row in rows([one.written for one in rollouts if one.sampler], policy.settings.row_tokens, policy.device)
    ]
    now = [_logprobs(policy, row) for row in laid]
    with policy.holding(start):
        then = [_logprobs(policy, row) for row in laid]
    if not laid:
        return None
    ratio = torch.cat(then) - torch.cat(now)
    return float((torch.expm1(ratio) - ratio).mean())


def _logprobs(policy: Policy, row: Row) -> Tensor:
    return policy.score(row).logprobs_P
