"""Random rollouts with environment tokens in the middle, as each trainer's tests feed them to both sides."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from curriculum.objective import advantages, surrogate

CLIP = {"clip_low": 0.2, "clip_high": 0.3}
#: Rollouts, the most tokens of one, rollouts of a group, and by how much the policy has moved since it sampled.
SHAPES = [(2, 3, 2, 0.2), (8, 12, 4, 0.3), (10, 33, 5, 0.05), (16, 64, 8, 0.4)]


@dataclass
class Batch:
    """N rollouts in groups of G, padded to T tokens; everything in double precision."""

    logprobs: Tensor  # [N, T]
    sampler: Tensor  # [N, T]
    policy: Tensor  # bool [N, T]
    rewards: Tensor  # [N]
    group: int

    @property
    def rollouts(self) -> int:
        return len(self.rewards)

    @property
    def gains(self) -> Tensor:
        groups = self.rewards.split(self.group)
        return torch.cat([advantages(rewards, torch.ones_like(rewards, dtype=torch.bool)) for rewards in groups])

    def rows(self, rows: slice) -> "Batch":
        """A micro-batch; its advantages are those of the whole, so ask for them before."""
        return Batch(self.logprobs[rows], self.sampler[rows], self.policy[rows], self.rewards[rows], self.group)


def batch(rollouts: int, length: int, group: int, drift: float, *, most_ratio: float = 2.5) -> Batch:
    """Rollouts of different lengths, each with a stretch of environment tokens, and rewards as they come: 0, 0.25 and 1.

    Args:
        drift: standard deviation of log-ratios.
        most_ratio: bound of the ratios.
    """
    generator = torch.Generator().manual_seed(rollouts * 1000 + length)

    def uniform() -> Tensor:
        return torch.rand(rollouts, length, dtype=torch.float64, generator=generator)

    logprobs = -3 * uniform()
    moved = torch.randn(rollouts, length, dtype=torch.float64, generator=generator) * drift
    bound = torch.tensor(most_ratio, dtype=torch.float64).log()
    place = torch.arange(length)
    ends = torch.randint(max(2, length // 2), length + 1, (rollouts, 1), generator=generator)
    starts = torch.randint(1, max(2, length // 3), (rollouts, 1), generator=generator)
    shown = (place >= starts) & (place < starts + max(1, length // 4))
    rewards = torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64)
    drawn = torch.randint(0, 3, (rollouts,), generator=generator)
    return Batch(logprobs, logprobs - moved.clamp(-bound, bound), (place < ends) & ~shown, rewards[drawn], group)


def ours(leaf_NT: Tensor, given: Batch, advantages_N: Tensor, length: int, rollouts: int) -> Any:
    """Our loss of rollouts whose log-probabilities are `leaf_NT`."""
    return surrogate(leaf_NT, given.sampler, advantages_N, given.policy, length=length, rollouts=rollouts, **CLIP)
