"""Which answer several judged traces of one question come to: Med-TIV's test-time search, and votes among judgments.

Nothing here depends on the order of the traces. Ties are shared, so that what a strategy chooses is a distribution over answers,
and weights are whole multiples of 2**-40, whose sums are exact in any order.

A trace without a readable answer chooses nothing. One that was not judged (None) has no say as long as a judged one has; where
none has, the readable traces decide without the judge, and `Selection.fell_back` tells.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

UNITS = 2**40  # a full vote


class Strategy(StrEnum):
    """How judged traces choose an answer."""

    MAJORITY = "majority"  # the commonest answer, without the judge (self-consistency)
    BEST = "best-of-n"  # that of the trace with the highest p; unjudged ones are tied for the last place
    HARD = "hard"  # the commonest among traces judged right; if none is, among all
    SOFT = "soft"  # each trace votes with its p; if no vote has weight, the commonest among all


@dataclass(frozen=True, slots=True)
class Selection:
    """What a strategy makes of the traces of one question. Both mappings name every readable answer, the heaviest first."""

    weights: dict[str, float]  # votes as shares that sum to 1; for best-of-n, shares of the traces tied for the best
    chances: dict[str, float]  # of being chosen, ties being shared; sums to 1; empty if no answer is readable
    fell_back: bool  # the strategy asks for a judge, and the traces were chosen from as if there were none


def select(
    strategy: Strategy, answers: Sequence[str | None], p: Sequence[float | None], verdicts: Sequence[int | None]
) -> Selection:
    """Choose among the traces of one question.

    Args:
        strategy: how.
        answers: of each trace; None where it is unreadable.
        p: the judge's probability that a trace is right, in [0, 1]; None where it was not judged.
        verdicts: 1 or 0; None where it was not judged.

    Raises:
        ValueError: the three differ in length, or hold a value out of range.
    """
    _check(answers, p, verdicts)
    if strategy is Strategy.BEST:
        units, fell_back = _best(answers, p)
        return Selection(_shares(units), _shares(units), fell_back)
    units = _tally(strategy, answers, p, verdicts)
    fell_back = bool(units) and not any(units.values())
    if fell_back:
        units = _tally(Strategy.MAJORITY, answers, p, verdicts)
    top = max(units.values(), default=0)
    return Selection(_shares(units), _shares({answer: int(votes == top) for answer, votes in units.items()}), fell_back)


def votes(
    strategy: Strategy, answers: Sequence[str | None], p: Sequence[float | None], verdicts: Sequence[int | None]
) -> dict[str, float]:
    """The weights of `select`: a share for each readable answer, summing to 1, or nothing if none is readable."""
    return select(strategy, answers, p, verdicts).weights


def tally(
    strategy: Strategy, answers: Sequence[str | None], p: Sequence[float | None], verdicts: Sequence[int | None]
) -> dict[str, float]:
    """Votes for each readable answer as they stand: exact sums of up to 1 a trace, with nothing to fall back on.

    Raises:
        ValueError: as `select`; or best-of-n, which counts no votes.
    """
    _check(answers, p, verdicts)
    if strategy is Strategy.BEST:
        raise ValueError("best-of-n counts no votes: use majority, hard or soft")
    return {answer: units / UNITS for answer, units in _tally(strategy, answers, p, verdicts).items()}


def combine_judgments(
    p: Sequence[float | None], verdicts: Sequence[int | None]
) -> tuple[float, int] | tuple[None, None]:
    """One judgment out of several of the same trace: mean probability, and the verdict of the majority.

    Those that failed (None) are left out; if all did, so has the vote. Where as many say 1 as say 0, the mean probability
    decides, and at exactly a half the verdict is 0: free of errors is what has to be shown.

    Raises:
        ValueError: the two differ in length, hold a value out of range, or disagree about which judgments failed.
    """
    _check([None] * len(p), p, verdicts)
    if any((chance is None) != (verdict is None) for chance, verdict in zip(p, verdicts, strict=True)):
        raise ValueError("a judgment has both a probability and a verdict, or it failed and has neither")
    chances = [chance for chance in p if chance is not None]
    if not chances:
        return None, None
    mean = math.fsum(chances) / len(chances)
    lead = sum(1 if verdict else -1 for verdict in verdicts if verdict is not None)
    return mean, int(lead > 0 or (lead == 0 and mean > 0.5))


def _check(answers: Sequence[str | None], p: Sequence[float | None], verdicts: Sequence[int | None]) -> None:
    if not len(answers) == len(p) == len(verdicts):
        raise ValueError(
            f"{len(answers)} answers, {len(p)} probabilities and {len(verdicts)} verdicts: one each a trace"
        )
    if not all(chance is None or 0 <= chance <= 1 for chance in p):
        raise ValueError("a probability is a number from 0 to 1, or None where there is no judgment")
    if not all(verdict in {None, 0, 1} for verdict in verdicts):
        raise ValueError("a verdict is 0 or 1, or None where there is no judgment")


def _tally(
    strategy: Strategy, answers: Sequence[str | None], p: Sequence[float | None], verdicts: Sequence[int | None]
) -> dict[str, int]:
    units: dict[str, int] = {}
    for answer, chance, verdict in zip(answers, p, verdicts, strict=True):
        if answer is not None:
            units[answer] = units.get(answer, 0) + _vote(strategy, chance, verdict)
    return units


def _vote(strategy: Strategy, chance: float | None, verdict: int | None) -> int:
    if strategy is Strategy.MAJORITY:
        return UNITS
    if strategy is Strategy.HARD:
        return UNITS if verdict == 1 else 0
    return 0 if chance is None else round(chance * UNITS)


def _best(answers: Sequence[str | None], p: Sequence[float | None]) -> tuple[dict[str, int], bool]:
    """How many of the best traces have each answer, and whether no readable trace was judged."""
    rank = [-1.0 if chance is None else chance for chance in p]
    readable = [(answer, place) for answer, place in zip(answers, rank, strict=True) if answer is not None]
    top = max((place for _, place in readable), default=0.0)
    units: dict[str, int] = {}
    for answer, place in readable:
        units[answer] = units.get(answer, 0) + (place == top)
    return units, top < 0


def _shares(units: Mapping[str, int]) -> dict[str, float]:
    total = sum(units.values())
    return {answer: units[answer] / total for answer in sorted(units, key=lambda answer: (-units[answer], answer))}
