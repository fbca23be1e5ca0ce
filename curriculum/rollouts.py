"""Rollouts: the judge's own episodes, several of each example, kept with all that training needs.

They are run by the judge that serves: the policy learns in the loop, with the parser and the searches that it is used with.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from curriculum.gates import Tried
from curriculum.policy.rows import Written
from curriculum.pool.example import Example
from verifier.engines.base import EngineError
from verifier.judge import Judge, Outcome
from verifier.reward import Reward, reward
from verifier.transcript import Author
from verifier.types import Judgment, StopReason

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One episode about an example."""

    example: Example
    written: Written  # all of its tokens, and which the policy wrote
    sampler: tuple[float, ...]  # log-probability with which each token of the policy was drawn
    judgment: Judgment
    reward: Reward | None  # None: not judged, for reasons outside the policy

    @property
    def tried(self) -> Tried:
        """What gates look at."""
        correct = None if self.reward is None else self.reward.correctness == 1
        return Tried(correct, self.reward.format if self.reward else 0.0, len(self.sampler))


class OutageError(RuntimeError):
    """Most episodes of a wave failed for reasons outside the policy; the message says what the first of them met."""


_OUTAGES = frozenset({StopReason.RETRIEVAL_ERROR, StopReason.ENGINE_ERROR, StopReason.DEADLINE})

#: The rollouts of one example.
Group = list[Rollout]


async def roll_out(judge: Judge, examples: Sequence[Example], size: int, seed: int) -> list[Group]:
    """`size` rollouts of each example, computed in waves of as many groups as the engine has places for.

    The episodes of a wave advance together, so that the same examples in the same order give the same numbers each time.

    Args:
        judge: in free mode; forced verdicts are nobody's writing and are not looked at.
        size: rollouts of an example (G).
        seed: another for each time that an example is tried.

    Raises:
        EngineError: the engine has fewer places than a group needs.
        OutageError: more than half of a wave could not be judged. To go on would use examples up for nothing.
    """
    if size > judge.max_together:
        raise EngineError(f"the engine has {judge.max_together} places, too few for a group of {size} (max_sequences)")
    groups: list[Group] = []
    for wave in divided(examples, judge.max_together // size):
        tried = [example for example in wave for _ in range(size)]
        async with judge.engine.open(len(tried)) as sequences:
            outcomes = await asyncio.gather(
                *(
                    judge.run(example.case, sequence, rollout_seed(seed, example, at % size))
                    for at, (example, sequence) in enumerate(zip(tried, sequences, strict=True))
                )
            )
        rollouts = [rollout_of(example, outcome) for example, outcome in zip(tried, outcomes, strict=True)]
        _refuse_outage(rollouts)
        groups += [rollouts[start : start + size] for start in range(0, len(rollouts), size)]
    return groups


def rollout_of(example: Example, outcome: Outcome) -> Rollout:
    """What an episode means for training."""
    segments = outcome.transcript.segments
    prompt = sum(len(segment.ids) for segment in segments if segment.author is Author.PROMPT)
    mask = outcome.transcript.policy_mask()[prompt:]
    sampler = tuple(logprob for segment in segments for logprob in segment.logprobs)
    written = Written(tuple(outcome.transcript.ids), prompt, tuple(mask))
    earned = reward(outcome.read, example.label, outcome.judgment.stop_reason)
    return Rollout(example, written, sampler, outcome.judgment, earned)


def _refuse_outage(rollouts: Sequence[Rollout]) -> None:
    failed = [one.judgment for one in rollouts if one.judgment.stop_reason in _OUTAGES]
    if 2 * len(failed) > len(rollouts):
        reason = failed[0].detail or failed[0].stop_reason
        raise OutageError(
            f"{len(failed)} of {len(rollouts)} episodes could not be judged ({reason}); mend that, and the same command goes on"
        )


def rollout_seed(seed: int, example: Example, number: int) -> int:
    """The seed of one rollout: its own, wherever its example stands in a batch."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {example.case.id} {number}".encode(), digest_size=7).digest())


def divided(items: Iterable[_Item], most: int) -> Iterator[list[_Item]]:
    """The items in lists of `most`; the last may be shorter."""
    source = iter(items)
    while taken := list(islice(source, most)):
        yield taken
