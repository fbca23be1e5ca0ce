import math

import numpy as np
import pytest

from eval.saving import Policy, cross_fit, policy_saving, samples_needed, saving
from eval.spending import Curve, Simulation, Stop


def curve(*points: tuple[float, float], questions: int = 4) -> Curve:
    """The same for every question: (accuracy, spent)."""
    accuracy, spent = np.array(points).T
    return Curve(*(np.repeat(values[:, None], questions, axis=1) for values in (accuracy, spent)))


FIXED = curve((0.5, 1), (0.6, 2), (0.7, 3), (0.7, 4))


@pytest.mark.parametrize(
    ("target", "needed"),
    [(0.1, 1), (0.5, 1), (0.55, 1.5), (0.6, 2), (0.675, 2.75), (0.7, 3), (0.71, math.nan), (math.nan, math.nan)],
)
def test_samples_needed_by_hand(target: float, needed: float) -> None:
    accuracy, spent = FIXED.points()
    assert samples_needed((accuracy, spent), target) == pytest.approx(needed, nan_ok=True)
    assert samples_needed((accuracy[::-1], spent[::-1]), target) == pytest.approx(needed, nan_ok=True)


def test_spending_more_for_less_is_not_needed() -> None:
    points = np.array([0.5, 0.7, 0.6, 0.8]), np.array([1.0, 2, 3, 4])
    assert samples_needed(points, 0.6) == pytest.approx(1.5)
    assert samples_needed(points, 0.75) == pytest.approx(3)


def test_a_coin_is_tossed_between_the_best_two_points() -> None:
    points = np.array([0.5, 0.5, 0.52, 0.7]), np.array([1.0, 2, 2.5, 3])
    assert samples_needed(points, 0.6) == pytest.approx(2)


@pytest.mark.parametrize(("loss", "expected"), [(0, 3 / 1.5), (0.1, 2 / 1.25), (0.5, 1)])
def test_saving_at_equal_accuracy(loss: float, expected: float) -> None:
    found = saving(FIXED, curve((0.5, 1), (0.7, 1.5), (0.7, 4)), loss)
    assert (found.value, found.low, found.high) == pytest.approx((expected,) * 3)  # all questions are alike


def test_an_accuracy_that_is_not_reached_has_no_saving() -> None:
    found = saving(FIXED, curve((0.5, 1), (0.65, 1.5)), 0)
    assert all(math.isnan(value) for value in (found.value, found.low, found.high))


def test_the_interval_comes_from_questions() -> None:
    random = np.random.default_rng(0)
    spent = random.integers(1, 5, size=(1, 200)).astype(float)
    adaptive = Curve(np.full((1, 200), 0.7), spent)
    fixed = curve((0.5, 1), (0.6, 2), (0.7, 3), (0.7, 4), questions=200)
    found = saving(fixed, adaptive, 0)
    assert found.value == pytest.approx(3 / spent.mean())
    error = 3 / spent.mean() ** 2 * spent.std() / math.sqrt(200)
    assert (found.low, found.high) == pytest.approx((found.value - 1.96 * error, found.value + 1.96 * error), rel=0.03)
    assert saving(fixed, adaptive, 0) == found != saving(fixed, adaptive, 0, seed=1)


@pytest.mark.parametrize(
    ("accuracy", "spent", "expected"), [(0.6, 1.25, 2 / 1.25), (0.9, 1.5, 3 / 1.5), (0.4, 2, 1 / 2)]
)
def test_saving_of_a_policy(accuracy: float, spent: float, expected: float) -> None:
    found = policy_saving(FIXED, Policy([], curve((accuracy, spent))))
    assert (found.value, found.low, found.high) == pytest.approx((expected,) * 3)


CHEAP, GOOD, ALL = Stop(0.6, 3), Stop(0.8, 5), Stop(math.inf, 5)


def simulation(questions: int = 30) -> Simulation:
    """Three stops and none; the second loses nothing, the first 0.1 on average, and a little more on some questions."""
    random = np.random.default_rng(0)
    adaptive = curve((0.6, 1), (0.7, 2), (0.7, 3), (0.7, 5), questions=questions)
    adaptive.accuracy_TQ[0] += random.normal(0, 0.01, questions)
    return Simulation([CHEAP, GOOD, Stop(0.9, 5), ALL], adaptive, adaptive)


@pytest.mark.parametrize(("loss", "stop", "spent"), [(0, GOOD, 2), (0.05, GOOD, 2), (0.15, CHEAP, 1)])
def test_the_cheapest_stop_within_the_loss_is_chosen(loss: float, stop: Stop, spent: float) -> None:
    policy = cross_fit(simulation(), loss, folds=3)
    assert policy.stops == [stop] * 3
    assert policy.curve.points()[1] == [spent]


def test_nothing_saved_where_every_stop_loses() -> None:
    found = simulation()
    found.adaptive.accuracy_TQ[-1] += 0.1
    assert cross_fit(found, 0).stops == [ALL] * 5


def test_a_stop_does_not_depend_on_the_questions_it_is_measured_on() -> None:
    """One fold is made to look as if the cheapest stop were the best: only the others' stops follow."""
    plain = cross_fit(simulation(), 0, folds=5)
    fold_Q = np.random.default_rng(0).permutation(30) % 5
    tempting = simulation()
    tempting.adaptive.accuracy_TQ[0, fold_Q == 2] = 5.0
    found = cross_fit(tempting, 0, folds=5)
    assert plain.stops == [GOOD] * 5
    assert found.stops == [CHEAP, CHEAP, GOOD, CHEAP, CHEAP]
    assert (found.curve.spent_TQ[0, fold_Q == 2] == 2).all()
    assert (found.curve.spent_TQ[0, fold_Q != 2] == 1).all()


@pytest.mark.parametrize(("questions", "folds"), [(30, 1), (4, 5), (30, 0)])
def test_folds_that_cannot_be_cut_are_refused(questions: int, folds: int) -> None:
    with pytest.raises(ValueError, match="cannot be cut"):
        cross_fit(simulation(questions), 0, folds=folds)
