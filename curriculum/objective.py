"""Dr.GRPO as pure functions: advantage, the log-probabilities of what was sampled, and the clipped surrogate.

Axis suffixes: G rollouts of one prompt, N rollouts of a batch, T positions of a rollout, V words of the vocabulary.

Sources: Dr.GRPO (Liu et al. 2025, "Understanding R1-Zero-Like Training", eq. 3: neither the length nor the spread of a group
divides anything); the asymmetric clip is DAPO's (Yu et al. 2025, eq. 10); environment tokens are left out as in Search-R1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


def advantages(rewards_G: Tensor, judged_G: Tensor) -> Tensor:
    """A_i = r_i - mean of the group, over those that were judged.

    Args:
        rewards_G: float; what stands where nothing was judged is not looked at, NaN included.
        judged_G: bool. A rollout that failed for reasons outside the policy is no evidence: it neither counts in the mean
            nor has an advantage.

    Returns:
        float, the dtype of the rewards; 0 where nothing was judged. A group with one judged rollout teaches nothing: 0.
    """
    kept_G = torch.where(judged_G, rewards_G, torch.zeros_like(rewards_G))
    mean = kept_G.sum() / judged_G.sum().clamp(min=1)
    return torch.where(judged_G, kept_G - mean, torch.zeros_like(kept_G))


def sampled_logprobs(logits_NTV: Tensor, ids_NT: Tensor, kept_NTV: Tensor | None = None) -> Tensor:
    """Log-probabilities with which the ids were drawn: softmax over the kept words alone.

    With top-p below 1 the sampler draws from a truncated distribution. A ratio between it and the model's full softmax would
    not be 1 even for the policy that sampled; renormalising both over the set that the sampler kept mends that.

    Args:
        logits_NTV: of the policy that is trained or that sampled, divided by the temperature.
        ids_NT: the word at each position.
        kept_NTV: bool, what the sampler could draw (`verifier.engines.sampling.nucleus`); None: all words. Ids outside it were
            not drawn (environment tokens): they are told their full log-probability, and masked from the loss.

    Returns:
        float [N, T], at most 0.
    """
    chosen_NT = logits_NTV.gather(-1, ids_NT.unsqueeze(-1)).squeeze(-1)
    full_NT = logits_NTV.logsumexp(-1)
    if kept_NTV is None:
        return chosen_NT - full_NT
    was_kept_NT = kept_NTV.gather(-1, ids_NT.unsqueeze(-1)).squeeze(-1)
    within_NT = logits_NTV.masked_fill(~kept_NTV, -torch.inf).logsumexp(-1)
    return chosen_NT - torch.where(was_kept_NT, within_NT, full_NT)


@dataclass(frozen=True, slots=True)
class Surrogate:
    """The loss of some rollouts, and what to watch of it. Sums, so that micro-batches add up."""

    loss: Tensor  # scalar; the micro-batches of a step add up to the loss of the whole batch
    tokens: int  # of the policy
    clipped: int  # of them, those whose gradient the clip cut off
    kl: float  # sum over tokens of the k3 estimate of KL(sampler || policy), in nats


def surrogate(
    logprobs_NT: Tensor,
    sampler_NT: Tensor,
    advantages_N: Tensor,
    policy_NT: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    length: int,
    rollouts: int,
) -> Surrogate:
    """-1 / (rollouts * length) * sum over policy tokens of min(r A, clip(r, 1 - low, 1 + high) A), r = exp(logp - sampler's).

    Args:
        logprobs_NT: of the policy that is trained.
        sampler_NT: of the policy that sampled; no gradient.
        advantages_N: one a rollout.
        policy_NT: bool; True where the policy wrote. Everything else, padding included, has no part in anything.
        clip_low, clip_high: how far the ratio may fall below and rise above 1 before it stops teaching.
        length: the constant that every rollout is divided by, whatever its own length: the most tokens that one may have.
        rollouts: judged ones in the whole batch, on all devices: not those of this micro-batch.
    """
    log_ratio_NT = torch.where(policy_NT, logprobs_NT - sampler_NT, torch.zeros_like(logprobs_NT))
    ratio_NT = log_ratio_NT.exp()
    advantages_N1 = advantages_N.unsqueeze(-1)
    free_NT = ratio_NT * advantages_N1
    bound_NT = ratio_NT.clamp(1 - clip_low, 1 + clip_high) * advantages_N1
    gain_NT = torch.where(policy_NT, torch.minimum(free_NT, bound_NT), torch.zeros_like(free_NT))
    with torch.no_grad():
        clipped = int((policy_NT & (bound_NT < free_NT)).sum())
        kl = float(torch.where(policy_NT, torch.expm1(-log_ratio_NT) + log_ratio_NT, 0.0).sum())
    return Surrogate(-gain_NT.sum() / (rollouts * length), int(policy_NT.sum()), clipped, kl)
