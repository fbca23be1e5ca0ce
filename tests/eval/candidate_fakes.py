"""Small made-up questions with judged traces, and what each strategy makes of them by definition, in fractions."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from eval.candidates import Candidates, gather
from verifier.selection import Strategy


@dataclass(frozen=True)
class Judged:
    """A trace; None where its answer is unreadable or it was not judged."""

    answer: str | None
    p: float | None
    verdict: int | None


@dataclass(frozen=True)
class Asked:
    """A question."""

    gold: str
    traces: Sequence[Judged]


#: Few values, so that ties are the rule; eighths, so that fractions and floats are the same. Verdicts need not follow p.
judged_traces = st.one_of(
    st.builds(
        Judged,
        st.sampled_from(["A", "B", "C", None]),
        st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]),
        st.integers(0, 1),
    ),
    st.builds(Judged, st.sampled_from(["A", "B", None]), st.none(), st.none()),
)


def questions(most: int, least: int = 1) -> st.SearchStrategy[list[Asked]]:
    """Up to four questions with unequal numbers of traces; the right answer need not be among those given."""
    traces = st.lists(judged_traces, min_size=least, max_size=most)
    return st.lists(st.builds(Asked, st.sampled_from(["A", "B", "D"]), traces), min_size=1, max_size=4)


def candidates_of(asked: Sequence[Asked]) -> Candidates:
    """Their traces as they would come from a file."""
    rows = [(f"q{number}", one.gold, trace) for number, one in enumerate(asked) for trace in one.traces]
    return gather(
        [question for question, _, _ in rows],
        [trace.answer for _, _, trace in rows],
        [gold for _, gold, _ in rows],
        np.array([np.nan if trace.p is None else trace.p for _, _, trace in rows]),
        np.array([-1 if trace.verdict is None else trace.verdict for _, _, trace in rows]),
    ).candidates


def chance_of(strategy: Strategy, traces: Sequence[Judged], answer: str) -> Fraction:
    """That a strategy chooses this answer: Med-TIV's definitions, ties shared."""
    readable = [trace for trace in traces if trace.answer is not None]
    if not readable:
        return Fraction(0)
    if strategy is Strategy.BEST:
        judged = [trace for trace in readable if trace.p is not None]
        best = max((trace.p for trace in judged if trace.p is not None), default=None)
        pool = [trace for trace in readable if trace.p == best]
        return Fraction(sum(trace.answer == answer for trace in pool), len(pool))
    weights = {
        Strategy.MAJORITY: lambda _: Fraction(1),
        Strategy.HARD: lambda trace: Fraction(trace.verdict == 1),
        Strategy.SOFT: lambda trace: Fraction(trace.p or 0),
    }
    voices = [(trace.answer, weights[strategy](trace)) for trace in readable]
    if not any(weight for _, weight in voices):
        voices = [(trace.answer, Fraction(1)) for trace in readable]
    votes = {given: sum(weight for other, weight in voices if other == given) for given, _ in voices}
    winners = [given for given, weight in votes.items() if weight == max(votes.values())]
    return Fraction(answer in winners, len(winners))


def expected(strategy: Strategy, asked: Asked, n: int) -> Fraction:
    """Accuracy over all subsets of n traces, or with all if there are fewer."""
    subsets = list(combinations(asked.traces, min(n, len(asked.traces))))
    return sum((chance_of(strategy, subset, asked.gold) for subset in subsets), Fraction(0)) / len(subsets)
