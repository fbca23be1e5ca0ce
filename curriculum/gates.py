"""Which groups of rollouts are worth training on.

The variance gate is Med-TIV's curriculum filter: a prompt is kept only if the policy that is about to be trained gets it both
right and wrong. It looks at correctness, never at the shaped reward: format must not let an all-wrong group through.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Tried:
    """What a gate looks at of one rollout."""

    correct: bool | None  # the verdict against the label; None: not judged, for reasons outside the policy
    format: float  # R_f: 1, 0.25 or 0
    tokens: int  # written by the policy


class Refusal(StrEnum):
    """Why a group is not trained on."""

    EASY = "easy"  # all right
    IMPOSSIBLE = "impossible"  # all wrong
    UNJUDGED = "unjudged"  # fewer than two judged rollouts: no evidence either way
    SHORT = "short"
    LONG = "long"
    ILL_FORMED = "ill_formed"


#: None if the group may pass.
Gate = Callable[[Sequence[Tried]], Refusal | None]


def varied(group: Sequence[Tried]) -> Refusal | None:
    """Pass a group of which two judged rollouts differ in correctness."""
    outcomes = [tried.correct for tried in group if tried.correct is not None]
    if len(outcomes) < 2:
        return Refusal.UNJUDGED
    if all(outcomes):
        return Refusal.EASY
    return None if any(outcomes) else Refusal.IMPOSSIBLE


def of_length(least: int, most: int) -> Gate:
    """Pass a group whose judged rollouts have between `least` and `most` policy tokens in the mean."""

    def gate(group: Sequence[Tried]) -> Refusal | None:
        lengths = [tried.tokens for tried in group if tried.correct is not None]
        if not lengths:
            return Refusal.UNJUDGED
        mean = sum(lengths) / len(lengths)
        if mean < least:
            return Refusal.SHORT
        return Refusal.LONG if mean > most else None

    return gate


def well_formed(share: float) -> Gate:
    """Pass a group of which at least `share` of the judged rollouts keep the format."""

    def gate(group: Sequence[Tried]) -> Refusal | None:
        scores = [tried.format for tried in group if tried.correct is not None]
        if not scores:
            return Refusal.UNJUDGED
        return None if sum(score > 0 for score in scores) >= share * len(scores) else Refusal.ILL_FORMED

    return gate


@dataclass(slots=True)
class Admission:
    """Counts what passes the gates, and why the rest does not."""

    gates: Sequence[Gate]
    kept: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    without_spread: int = 0  # groups whose rewards are all equal: no gradient comes from them

    def admit(self, group: Sequence[Tried], rewards: Sequence[float]) -> bool:
        """Whether the group may be trained on.

        Args:
            group: the rollouts of one prompt.
            rewards: of those that were judged.
        """
        self.without_spread += len(set(rewards)) < 2
        refusal = next((refusal for gate in self.gates if (refusal := gate(group))), None)
        if refusal is None:
            self.kept += 1
            return True
        self.refused[refusal] += 1
        return False

    @property
    def seen(self) -> int:
        """Groups looked at."""
        return self.kept + self.refused.total()

    def metrics(self) -> Mapping[str, float]:
        """Shares of the groups seen: kept, each refusal, and `frac_reward_zero_std`. All 0 before the first group."""
        seen = max(self.seen, 1)
        shares = {str(refusal): self.refused[refusal] / seen for refusal in Refusal}
        return {"kept": self.kept / seen, **shares, "frac_reward_zero_std": self.without_spread / seen}
