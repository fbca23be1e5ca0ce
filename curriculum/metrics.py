"""What is written down of each step: pure functions from rollouts and updates to numbers by name."""

from collections.abc import Mapping, Sequence
from itertools import chain

from curriculum.rollouts import Group, Rollout
from curriculum.selecting import Selection
from curriculum.update import Learned
from curriculum.warm_up import WarmedUp

Numbers = Mapping[str, float | None]


def of_rollouts(groups: Sequence[Group]) -> Numbers:
    """Means over the judged rollouts, and shares of all of them. None where nothing was judged.

    `frac_reward_zero_std` is the share of groups whose rewards are all equal, which teach nothing.
    """
    rollouts = list(chain.from_iterable(groups))
    judged = [rollout for rollout in rollouts if rollout.reward]
    return {
        "reward": _mean([one.reward.total for one in judged if one.reward]),
        "correctness": _mean([one.reward.correctness for one in judged if one.reward]),
        "format": _mean([float(one.reward.format > 0) for one in judged if one.reward]),
        "said_1": _mean([float(one.judgment.verdict) for one in judged if one.judgment.verdict is not None]),
        "searches": _mean([float(len(one.judgment.searches)) for one in judged]),
        "searched": _mean([float(bool(one.judgment.searches)) for one in judged]),
        "length": _mean([float(len(one.sampler)) for one in judged]),
        "unjudged": _mean([float(one.reward is None) for one in rollouts]),
        "frac_reward_zero_std": _mean(
            [float(len({one.reward.total for one in group if one.reward}) < 2) for group in groups]
        ),
        "rollout_tokens": float(sum(len(one.sampler) for one in rollouts)),
    }


def of_update(learned: Learned) -> Numbers:
    """Means over the policy's tokens that were learned from; None where there were none."""
    tokens = learned.tokens
    return {
        "loss": learned.loss,
        "lessons": float(learned.lessons),
        "clipped": learned.clipped / tokens if tokens else None,
        "kl_to_sampler": learned.kl / tokens if tokens else None,
        "entropy": learned.entropy / tokens if tokens else None,
        "gradient": learned.gradient,
        "trained_tokens": float(learned.computed),
    }


def of_warm_up(done: WarmedUp) -> Numbers:
    """A supervised step."""
    return {
        "loss": done.loss,
        "verdict_loss": done.verdict_loss,
        "gradient": done.gradient,
        "trained_tokens": float(done.computed),
    }


def of_selection(selection: Selection) -> Numbers:
    """What the gates let through."""
    return {
        "examples": float(len(selection.examples)),
        "right": float(sum(example.label for example in selection.examples)),
        "candidates": float(selection.admission.seen),
        "pool_spent": float(selection.spent),
        "rollout_tokens": float(selection.tokens),
        **(selection.admission.metrics() if selection.admission.seen else {}),
    }


def of_held_out(rollouts: Sequence[Rollout]) -> Numbers:
    """One greedy episode of each held-out example. Accuracy counts an unreadable verdict as wrong; half the labels are 1."""
    numbers = of_rollouts([[rollout] for rollout in rollouts])
    kept = {
        "accuracy": "correctness",
        "format": "format",
        "said_1": "said_1",
        "searched": "searched",
        "unjudged": "unjudged",
    }
    return {f"held_out_{name}": numbers[source] for name, source in kept.items()}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
