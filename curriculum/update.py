"""One batch of rollouts becomes one optimiser step (or a few): advantages, the clipped surrogate, the gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curriculum.objective import advantages, surrogate
from curriculum.policy.policy import Policy
from curriculum.policy.rows import rows
from curriculum.rollouts import Group, Rollout


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a batch is learned from."""

    clip_low: float  # how far the ratio of new to old probability may fall below 1 before it stops teaching
    clip_high: float  # and rise above it
    length: int  # the constant that every rollout is divided by: the most tokens that one may have
    mini_batches: int = 1  # parts of a batch, in order; an optimiser step each
    temperature: float = 1.0  # of the sampler
    top_p: float = 1.0  # of the sampler


@dataclass(frozen=True, slots=True)
class Learned:
    """What an update did, in sums that add up over mini-batches."""

    steps: int  # of the optimiser
    lessons: int  # rollouts with an advantage other than 0
    tokens: int  # of the policy, in these
    computed: int  # tokens that went through the model
    loss: float
    clipped: int  # tokens whose gradient the clip cut off
    kl: float  # k3 estimate of KL(sampler || policy), summed over tokens, in nats
    entropy: float  # summed over tokens, in nats
    gradient: float  # largest norm before clipping


def learn(policy: Policy, optimiser: torch.optim.Optimizer, groups: Sequence[Group], recipe: Recipe) -> Learned:
    """Teach the policy what its rollouts showed.

    Rollouts without an advantage (of groups that agree, or that were not judged) have no gradient and are not computed.

    Raises:
        FloatingPointError: a gradient is not a number.
    """
    done = [_step(policy, optimiser, part, recipe) for part in _parts(groups, recipe.mini_batches)]
    return Learned(
        steps=sum(one.steps for one in done),
        lessons=sum(one.lessons for one in done),
        tokens=sum(one.tokens for one in done),
        computed=sum(one.computed for one in done),
        loss=sum(one.loss for one in done),
        clipped=sum(one.clipped for one in done),
        kl=sum(one.kl for one in done),
        entropy=sum(one.entropy for one in done),
        gradient=max((one.gradient for one in done), default=0.0),
    )


def lessons(groups: Sequence[Group]) -> list[tuple[Rollout, float]]:
    """The rollouts that teach something, each with its advantage; those of a group next to one another."""
    found = []
    for group in groups:
        judged_G = torch.tensor([one.reward is not None for one in group])
        rewards_G = torch.tensor([one.reward.total if one.reward else torch.nan for one in group])
        found += [
            (one, advantage)
            for one, advantage in zip(group, advantages(rewards_G, judged_G).tolist(), strict=True)
            if advantage != 0 and one.sampler
        ]
    return found


def _step(policy: Policy, optimiser: torch.optim.Optimizer, groups: Sequence[Group], recipe: Recipe) -> Learned:
    taught = lessons(groups)
    judged = sum(one.reward is not None for group in groups for one in group)
    if not taught:
        return Learned(0, 0, 0, 0, 0.0, 0, 0.0, 0.0, 0.0)
    loss, tokens, computed, clipped, kl, entropy = 0.0, 0, 0, 0, 0.0, 0.0
    optimiser.zero_grad(set_to_none=True)
    for taken, row in rows([one.written for one, _ in taught], policy.settings.row_tokens, policy.device):
        scored = policy.score(row, recipe.temperature, recipe.top_p)
        part = [taught[index] for index in taken]
        sampler_P = torch.tensor([value for one, _ in part for value in one.sampler], device=policy.device)
        advantages_P = torch.tensor([value for one, value in part for _ in one.sampler], device=policy.device)
        surrogated = surrogate(
            scored.logprobs_P[:, None],
            sampler_P[:, None],
            advantages_P,
            torch.ones_like(sampler_P, dtype=torch.bool)[:, None],
            clip_low=recipe.clip_low,
            clip_high=recipe.clip_high,
            length=recipe.length,
            rollouts=judged,
        )
        surrogated.loss.backward()  # type: ignore[no-untyped-call]
        loss += float(surrogated.loss.detach())
        tokens += surrogated.tokens
        computed += row.tokens
        clipped += surrogated.clipped
        kl += surrogated.kl
        entropy += scored.entropy
    gradient = take_step(policy, optimiser)
    return Learned(1, len(taught), tokens, computed, loss, clipped, kl, entropy, gradient)


def take_step(policy: Policy, optimiser: torch.optim.Optimizer) -> float:
    """Shorten the gradient if it is too long, and follow it; returns its length before.

    Raises:
        FloatingPointError: the gradient is not a number. The weights are as they were.
    """
    norm: Tensor = torch.nn.utils.clip_grad_norm_(policy.trained, policy.settings.max_grad_norm)
    if not torch.isfinite(norm):
        raise FloatingPointError(
            "the gradient is not a number; lower the learning rate, or set policy.precision to float32"
        )
    optimiser.step()
    return float(norm)


def _parts(groups: Sequence[Group], count: int) -> list[Sequence[Group]]:
    size = -(-len(groups) // count)
    return [groups[start : start + size] for start in range(0, len(groups), size)] if groups else []
