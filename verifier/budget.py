"""When enough traces were drawn: stop as soon as the leading answer is safe.

How safe a lead is, is a number from 0 to 1. The two ways to tell it use plain arithmetic only, so that they take numbers here and
arrays in simulations (`eval/spending.py`), and both stop at the same traces. What a threshold costs in accuracy is not for the
formula to say: `eval/saving.py` chooses thresholds on questions other than those they are measured on.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from verifier.selection import Selection, Strategy, select, tally

if TYPE_CHECKING:  # the base install has no numpy
    import numpy as np
    from numpy.typing import NDArray

Number = TypeVar("Number", float, "NDArray[np.float64]")


class Safety(Protocol):
    """How safe the leading answer is."""

    def __call__(self, lead: Number, second: Number, spent: int, limit: int) -> Number:
        """From 0 to 1, for each pair of votes.

        Args:
            lead: votes for the leading answer, at most 1 a trace.
            second: votes for the next one; not more than `lead`, and 0 if there is none.
            spent: traces drawn so far, voting or not.
            limit: traces that may be drawn in all.
        """


def decided(lead: Number, second: Number, spent: int, limit: int) -> Number:
    """1 if the lead stands even if all that is left votes for the runner-up with full weight, else 0.

    Stopping at 1 gives the answer that the whole budget would have given, whatever is drawn.
    """
    return 0.0 * lead + (lead - second > limit - spent)


def predicted(lead: Number, second: Number, spent: int, limit: int) -> Number:
    """Chance that the leader still leads when the budget is spent, a tie counting half.

    A trace votes for the leader, for the runner-up or for neither, and one with weight p is p votes and 1 - p abstentions. Shares
    have a uniform Dirichlet prior, so what is left to draw is Dirichlet-multinomial given what was drawn (Aggarwal et al. 2023,
    adaptive consistency, ask whether the leader's share is the larger; this asks who wins in the end). A third answer that
    overtakes both is left out: the number orders states by how safe they are and is no calibrated chance.
    """
    left = limit - spent
    neither = spent - lead - second
    lost = 0.0 * lead
    voting = 1.0 + lost  # chance that `voters` of those left vote for one of the two; that none does, to begin with
    for drawn in range(left):
        voting = voting * (neither + 1 + drawn) / (spent + 3 + drawn)
    all_second = 1.0 + lost  # chance that all of these vote for the runner-up
    for voters in range(left + 1):
        if voters:
            voting = (
                voting * (left - voters + 1) * (lead + second + 1 + voters) / (voters * (neither + 1 + left - voters))
            )
            all_second = all_second * (second + voters) / (lead + second + 1 + voters)
        chance = all_second  # that `more` of them vote for the leader instead
        for more in range(voters // 2 + 1):  # with more than half of them it stays in front
            if more:
                chance = chance * (voters - more + 1) * (lead + more) / (more * (second + 1 + voters - more))
            final = lead - second + (2 * more - voters)
            lost = lost + voting * chance * (0.5 * (final < 0) + 0.5 * (final <= 0))
    return 1.0 - lost


@dataclass(frozen=True, slots=True)
class Rule:
    """Stop when the lead is as safe as this.

    Raises:
        ValueError: a threshold of a half or less, which a tie would reach, or above 1, which nothing reaches.
    """

    safety: Safety
    threshold: float = 1.0

    def __post_init__(self) -> None:
        if not 0.5 < self.threshold <= 1:
            raise ValueError(f"the threshold is above 0.5 and at most 1, not {self.threshold}")

    def stops(self, votes: Iterable[float], spent: int, limit: int) -> bool:
        """Whether these votes for each answer, after so many traces, settle it."""
        lead, second = nlargest(2, [*votes, 0.0, 0.0])
        return self.safety(lead, second, spent, limit) >= self.threshold


class Sample(Protocol):
    """What a generator wrote, as far as voting is concerned."""

    @property
    def answer(self) -> str | None:
        """What it ends with; None where that is unreadable."""


class Judged(Protocol):
    """What a judge said, as far as voting is concerned; a `Judgment` is one."""

    @property
    def p_correct(self) -> float | None:
        """None where there is no judgment."""

    @property
    def verdict(self) -> int | None:
        """None where there is no judgment."""


S = TypeVar("S", bound=Sample)
J = TypeVar("J", bound=Judged)


@dataclass(frozen=True, slots=True)
class Spent(Generic[S, J]):
    """What was drawn for one question, and what it came to."""

    samples: list[S]
    judgments: list[J | None]  # one a sample; None where its vote asks for none: without an answer, or under majority
    selection: Selection
    safe: bool  # the rule was met; if not, the budget ran out


async def spend(
    draw: Callable[[], Awaitable[S]], judge: Callable[[S], Awaitable[J]], rule: Rule, limit: int, *,
    strategy: Strategy = Strategy.SOFT,
) -> Spent[S, J]:  # fmt: skip
    """Draw and judge traces of one question, one after another, until the leading answer is safe or the budget is spent.

    Args:
        draw: gives the next trace. What it raises ends the spending.
        judge: judges it; not called under majority, whose votes need no judgment, nor for a trace without an answer. A judgment
            that failed costs its trace the vote, no more; what is raised ends the spending.
        rule: when to stop.
        limit: traces to draw at most, 1 or more.
        strategy: how traces vote: majority, hard or soft.

    Raises:
        ValueError: no budget, or best-of-n, which counts no votes.
    """
    if limit < 1:
        raise ValueError(f"nothing can be drawn within a limit of {limit}")
    if strategy is Strategy.BEST:
        raise ValueError("best-of-n counts no votes: use majority, hard or soft")
    samples: list[S] = []
    judgments: list[J | None] = []
    safe = False
    while not safe and len(samples) < limit:
        sample = await draw()
        samples.append(sample)
        is_judged = sample.answer is not None and strategy is not Strategy.MAJORITY
        judgments.append(await judge(sample) if is_judged else None)
        safe = rule.stops(tally(strategy, *_ballots(samples, judgments)).values(), len(samples), limit)
    return Spent(samples, judgments, select(strategy, *_ballots(samples, judgments)), safe)


def _ballots(
    samples: list[S], judgments: list[J | None]
) -> tuple[list[str | None], list[float | None], list[int | None]]:
    return (
        [sample.answer for sample in samples],
        [None if judgment is None else judgment.p_correct for judgment in judgments],
        [None if judgment is None else judgment.verdict for judgment in judgments],
    )
