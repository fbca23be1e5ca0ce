"""When a lead is safe, and spending until it is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.budget import Rule, Safety, Spent, decided, predicted, spend
from verifier.selection import Strategy, select, tally


@st.composite
def standings(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Lead, second, spent, limit."""
    second = draw(st.integers(0, 4))
    lead = draw(st.integers(second, 6))
    spent = draw(st.integers(max(1, lead + second), 12))
    return lead, second, spent, draw(st.integers(spent, 16))


def rising(start: int, steps: int) -> int:
    return math.prod(range(start, start + steps))


def wins(lead: int, second: int, spent: int, limit: int) -> Fraction:
    """By definition: every way in which the rest can vote, with its Dirichlet-multinomial chance."""
    left, neither, total = limit - spent, spent - lead - second, Fraction(0)
    for ours in range(left + 1):
        for theirs in range(left - ours + 1):
            others = left - ours - theirs
            ways = comb(left, ours) * comb(left - ours, theirs)
            numerator = rising(lead + 1, ours) * rising(second + 1, theirs) * rising(neither + 1, others)
            final = lead + ours - second - theirs
            total += ways * Fraction(numerator, rising(spent + 3, left)) * Fraction((final > 0) + (final >= 0), 2)
    return total


@given(standings())
def test_predicted_is_what_its_definition_says(standing: tuple[int, int, int, int]) -> None:
    lead, second, spent, limit = standing
    assert predicted(float(lead), float(second), spent, limit) == pytest.approx(float(wins(*standing)), abs=1e-12)


@given(standings())
def test_predicted_is_certain_where_it_is_decided_and_undecided_on_a_tie(standing: tuple[int, int, int, int]) -> None:
    lead, second, spent, limit = standing
    found = predicted(float(lead), float(second), spent, limit)
    assert (found == 1) == (decided(float(lead), float(second), spent, limit) == 1)
    assert found == pytest.approx(0.5) if lead == second else found > 0.5


@pytest.mark.parametrize("safety", [decided, predicted])
@given(weights=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=5))
def test_arrays_and_numbers_are_the_same_to_the_last_bit(safety: Safety, weights: list[tuple[float, float]]) -> None:
    """Else a simulation would stop elsewhere than the helper."""
    lead, second = np.array([max(pair) for pair in weights]), np.array([min(pair) for pair in weights])
    found = safety(lead, second, 10, 16)
    assert found.tolist() == [safety(max(pair), min(pair), 10, 16) for pair in weights]
    assert found.dtype == np.float64


@given(st.floats(0, 4), st.floats(0, 4), st.floats(0, 1))
def test_a_longer_lead_is_safer(one: float, other: float, more: float) -> None:
    lead, second = max(one, other), min(one, other)
    assert predicted(lead + more, second, 9, 16) >= predicted(lead, second, 9, 16) - 1e-12


answers = st.sampled_from(["A", "B", "C", None])
traces = st.lists(
    st.tuples(answers, st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), st.integers(0, 1)), min_size=1, max_size=9
)


@given(st.sampled_from([Strategy.MAJORITY, Strategy.HARD, Strategy.SOFT]), traces)
def test_what_is_decided_is_what_the_whole_budget_gives(
    strategy: Strategy, drawn: list[tuple[str | None, float, int]]
) -> None:
    whole = select(strategy, *zip(*drawn, strict=True)).chances
    for spent in range(1, len(drawn) + 1):
        part = list(zip(*drawn[:spent], strict=True))
        if Rule(decided).stops(tally(strategy, *part).values(), spent, len(drawn)):
            assert {a for a, chance in select(strategy, *part).chances.items() if chance} == {
                a for a, chance in whole.items() if chance
            }


@pytest.mark.parametrize("threshold", [0.5, 0.0, -1.0, 1.0000001, math.nan])
def test_a_threshold_that_means_nothing_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="the threshold is above"):
        Rule(predicted, threshold)


@dataclass(frozen=True)
class Sampled:
    answer: str | None


@dataclass(frozen=True)
class Said:
    p_correct: float | None
    verdict: int | None


RIGHT, WRONG, FAILED = Said(0.9, 1), Said(0.1, 0), Said(None, None)


class Generator:
    """Gives what it was told to, and counts."""

    def __init__(self, *written: tuple[str | None, Said]) -> None:
        self._left = iter(written)
        self._said: Iterator[Said] = iter([said for answer, said in written if answer is not None])
        self.drawn = self.judged = 0

    async def draw(self) -> Sampled:
        self.drawn += 1
        return Sampled(next(self._left)[0])

    async def judge(self, sample: Sampled) -> Said:
        assert sample.answer is not None
        self.judged += 1
        return next(self._said)

    async def spend(self, rule: Rule, limit: int, strategy: Strategy) -> Spent[Sampled, Said]:
        return await spend(self.draw, self.judge, rule, limit, strategy=strategy)


async def test_drawing_stops_when_the_lead_is_safe() -> None:
    generator = Generator(("A", RIGHT), ("B", WRONG), ("A", RIGHT), ("A", RIGHT), ("A", RIGHT))
    spent = await generator.spend(Rule(decided), 5, Strategy.HARD)
    assert (generator.drawn, generator.judged) == (4, 4)  # 2 : 0 with two left is no safe lead, 3 : 0 with one left is
    assert spent.safe
    assert spent.samples == [Sampled("A"), Sampled("B"), Sampled("A"), Sampled("A")]
    assert spent.judgments == [RIGHT, WRONG, RIGHT, RIGHT]
    assert spent.selection.chances == {"A": 1, "B": 0}


async def test_the_majority_asks_no_judge() -> None:
    generator = Generator(("A", RIGHT), ("B", WRONG), (None, RIGHT), ("A", FAILED), ("A", RIGHT), ("A", RIGHT))
    spent = await generator.spend(Rule(decided), 6, Strategy.MAJORITY)
    assert (generator.drawn, generator.judged) == (5, 0)  # 3 : 1 with one left
    assert spent.safe
    assert spent.judgments == [None] * 5
    assert spent.selection.chances == {"A": 1, "B": 0}
    assert not spent.selection.fell_back


async def test_a_judge_that_tells_right_from_wrong_saves_more() -> None:
    written = [("B", WRONG), ("A", RIGHT), ("B", WRONG), ("A", RIGHT), ("A", RIGHT), ("B", WRONG), ("A", RIGHT)] * 2
    counts = {
        strategy: len((await Generator(*written).spend(Rule(predicted, 0.9), 14, strategy)).samples)
        for strategy in (Strategy.MAJORITY, Strategy.SOFT)
    }
    assert counts[Strategy.SOFT] < counts[Strategy.MAJORITY]


async def test_the_limit_ends_it_and_is_told() -> None:
    spent = await Generator(*[("A", RIGHT), ("B", RIGHT)] * 2).spend(Rule(predicted, 0.9), 4, Strategy.SOFT)
    assert len(spent.samples) == 4
    assert not spent.safe
    assert spent.selection.chances == {"A": 0.5, "B": 0.5}


async def test_what_cannot_be_read_is_not_judged_and_what_was_not_judged_does_not_vote() -> None:
    generator = Generator((None, RIGHT), ("B", FAILED), ("B", FAILED), ("A", RIGHT))
    spent = await generator.spend(Rule(decided), 4, Strategy.SOFT)
    assert (generator.drawn, generator.judged) == (4, 3)
    assert spent.judgments == [None, FAILED, FAILED, RIGHT]
    assert spent.selection.chances == {"A": 1, "B": 0}


async def test_nothing_judged_falls_back_on_the_majority() -> None:
    spent = await Generator(("B", FAILED), ("A", FAILED), ("B", FAILED)).spend(Rule(decided), 3, Strategy.SOFT)
    assert spent.selection.fell_back
    assert spent.selection.chances == {"B": 1, "A": 0}
    assert not spent.safe


async def test_an_outage_is_not_swallowed() -> None:
    async def draw() -> Sampled:
        raise ConnectionError("the generator is gone")

    with pytest.raises(ConnectionError):
        await spend(draw, Generator().judge, Rule(decided), 3)


@pytest.mark.parametrize(("limit", "strategy", "message"), [(0, "soft", "limit of 0"), (3, "best-of-n", "no votes")])
async def test_what_cannot_be_spent_is_refused_before_drawing(limit: int, strategy: str, message: str) -> None:
    generator = Generator(("A", RIGHT))
    with pytest.raises(ValueError, match=message):
        await generator.spend(Rule(decided), limit, Strategy(strategy))
    assert generator.drawn == 0
