"""The training reward R = R_c x R_f (Med-TIV, section on reward design), decomposed.

What is scored is the policy's own text, all its turns joined: neither the prompt, nor evidence, nor anything forced on it.
"""

from dataclasses import dataclass
from typing import Literal

from verifier.parse import MAX_ANSWERS, Parse, Tag
from verifier.types import StopReason

#: Endings that say nothing about the policy. They have no reward and must be left out of a group before it is looked at.
OUTSIDE_THE_POLICY = frozenset(
    {StopReason.RETRIEVAL_ERROR, StopReason.ENGINE_ERROR, StopReason.DEADLINE, StopReason.PROMPT_TOO_LONG}
)


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward and its factors."""

    correctness: float  # R_c: 1 if the label is the gold label, else 0; an unreadable label is not correct
    format: float  # R_f: 1, 0.25 or 0

    @property
    def total(self) -> float:
        return self.correctness * self.format


def format_score(read: Parse) -> float:
    """R_f: 1 if the output keeps the format with at most 10 answer pairs, 0.25 if it is valid but has more, else 0.

    Keeping the format means: thinking before every search and before the answer, balanced tags, nothing outside them, no
    evidence of the policy's own making, and a last answer that is exactly 0 or 1.
    """
    if read.defects:
        return 0.0
    return 1.0 if read.pairs[Tag.ANSWER] <= MAX_ANSWERS else 0.25


def reward(read: Parse, gold: Literal[0, 1], stop: StopReason) -> Reward | None:
    """Reward of one episode, or None if it was not judged for reasons outside the policy.

    For free mode: in guided mode the policy writes no tags, `read` is empty, and there is nothing to reward. An episode ends at
    its first complete answer; more than one, and so the 0.25, can only be met in text from elsewhere.

    A policy that runs on without an answer (`truncated`) or gives an unreadable one (`unparseable`) did so itself: reward 0.
    """
    if stop in OUTSIDE_THE_POLICY:
        return None
    return Reward(correctness=float(read.label == gold), format=format_score(read))
