"""Simulated spending against the helper that people run, over every order."""

import itertools
import math

import numpy as np
import pytest
from candidate_fakes import Asked, Judged, candidates_of, chance_of, expected, questions
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.spending import THRESHOLDS, Stop, simulate
from verifier.budget import Rule, Safety, decided, predicted
from verifier.selection import Strategy, tally

VOTES = (Strategy.MAJORITY, Strategy.HARD, Strategy.SOFT)
votes = st.sampled_from(VOTES)


def followed(strategy: Strategy, rule: Rule, limit: int, asked: Asked) -> tuple[float, float]:
    """Accuracy and traces spent by the rule, one order after the other."""
    accuracies, spent = [], []
    limit = min(limit, len(asked.traces))
    for order in itertools.permutations(asked.traces):
        for count in range(1, limit + 1):
            drawn: tuple[Judged, ...] = order[:count]
            columns = [t.answer for t in drawn], [t.p for t in drawn], [t.verdict for t in drawn]
            if rule.stops(tally(strategy, *columns).values(), count, limit):
                break
        accuracies.append(float(chance_of(strategy, drawn, asked.gold)))
        spent.append(count)
    return float(np.mean(accuracies)), float(np.mean(spent))


@pytest.mark.parametrize("safety", [decided, predicted])
@settings(max_examples=20)
@given(asked=questions(most=5), strategy=votes)
def test_the_simulation_stops_where_the_rule_does(safety: Safety, asked: list[Asked], strategy: Strategy) -> None:
    found = simulate(candidates_of(asked), strategy, safety, [0.6, 0.8, 1.0], [3], orders=120)
    for point, stop in enumerate(found.stops):
        if stop.threshold <= 1:
            by_hand = np.array([followed(strategy, Rule(safety, stop.threshold), stop.limit, one) for one in asked])
            assert found.adaptive.accuracy_TQ[point] == pytest.approx(by_hand[:, 0])
            assert found.adaptive.spent_TQ[point] == pytest.approx(by_hand[:, 1])


@settings(max_examples=20)
@given(questions(most=5), votes)
def test_fixed_spending_is_the_scaling_curve(asked: list[Asked], strategy: Strategy) -> None:
    found = simulate(candidates_of(asked), strategy, decided, orders=120).fixed
    for n, (accuracy_Q, spent_Q) in enumerate(zip(found.accuracy_TQ, found.spent_TQ, strict=True), start=1):
        assert accuracy_Q == pytest.approx([float(expected(strategy, one, n)) for one in asked])
        assert spent_Q.tolist() == [min(n, len(one.traces)) for one in asked]


@settings(max_examples=20)
@given(questions(most=12, least=8), votes, st.integers(0, 9))
def test_the_last_point_spends_everything_and_what_is_decided_costs_nothing(
    asked: list[Asked], strategy: Strategy, seed: int
) -> None:
    found = simulate(candidates_of(asked), strategy, decided, [1.0], [], orders=9, seed=seed)
    counts = [len(one.traces) for one in asked]
    assert found.stops == [Stop(1.0, max(counts)), Stop(math.inf, max(counts))]
    assert found.adaptive.accuracy_TQ[1] == pytest.approx(
        [float(chance_of(strategy, one.traces, one.gold)) for one in asked]
    )
    assert found.adaptive.accuracy_TQ[0] == pytest.approx(found.adaptive.accuracy_TQ[1])
    assert found.adaptive.spent_TQ[1].tolist() == counts
    assert (found.adaptive.spent_TQ[0] <= counts).all()


def made_up(count: int, traces: int) -> list[Asked]:
    generator = np.random.default_rng(1)
    return [
        Asked("A", [Judged("AB"[int(generator.random() < 0.4)], 0.5, 1) for _ in range(traces)]) for _ in range(count)
    ]


def test_a_higher_threshold_spends_more() -> None:
    found = simulate(candidates_of(made_up(20, 15)), Strategy.MAJORITY, predicted, limits=[])
    assert (np.diff(found.adaptive.spent_TQ, axis=0) >= 0).all()
    assert found.adaptive.spent_TQ[0].mean() < 3 < 10 < found.adaptive.spent_TQ[-2].mean()


def test_no_early_stop_is_a_fixed_number_of_traces() -> None:
    found = simulate(candidates_of(made_up(20, 15)), Strategy.MAJORITY, predicted, [0.9], [1, 4, 15, 99], orders=5)
    assert [stop.limit for stop in found.stops] == [1, 1, 4, 4, 15, 15]
    for stop, accuracy_Q in zip(found.stops, found.adaptive.accuracy_TQ, strict=True):
        if stop.threshold == math.inf:
            assert np.array_equal(accuracy_Q, found.fixed.accuracy_TQ[stop.limit - 1])


def test_the_same_seed_gives_the_same_curve() -> None:
    batch = candidates_of(made_up(5, 15))
    first, second, third = (simulate(batch, Strategy.MAJORITY, predicted, orders=9, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.adaptive.accuracy_TQ, second.adaptive.accuracy_TQ)
    assert not np.array_equal(first.adaptive.spent_TQ, third.adaptive.spent_TQ)


def test_the_default_thresholds_are_thresholds() -> None:
    assert [Rule(predicted, threshold).threshold for threshold in THRESHOLDS] == sorted(set(THRESHOLDS))
    assert THRESHOLDS[-1] == 1


@pytest.mark.parametrize(
    ("strategy", "thresholds", "limits", "orders", "message"),
    [
        (Strategy.SOFT, [0.5], [2], 9, "thresholds above 0.5"),
        (Strategy.SOFT, [1.1], [2], 9, "thresholds above 0.5"),
        (Strategy.SOFT, [0.9], [2], 0, "orders and limits are 1 or more"),
        (Strategy.SOFT, [0.9], [0], 9, "orders and limits are 1 or more"),
        (Strategy.BEST, [0.9], [2], 9, "best-of-n counts no votes"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    strategy: Strategy, thresholds: list[float], limits: list[int], orders: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(candidates_of(made_up(2, 3)), strategy, decided, thresholds, limits, orders=orders)
