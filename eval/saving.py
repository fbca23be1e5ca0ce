"""How many traces a rule saves at equal accuracy, and where to stop, chosen on questions other than those it is measured on.

The saving is n / s: n traces of a fixed number reach some accuracy, and s traces on average under the rule reach the same.
On either side one may toss a coin between two ways to spend, so that accuracies between those of two points are reached as well.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eval.metrics import Estimate, Floats, Labels
from eval.spending import Curve, Simulation, Stop

_Points = tuple[Floats, Floats]  # accuracy and traces spent, [T] each


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule whose threshold and limit were chosen on other questions than those it is measured on."""

    stops: list[Stop]  # one a fold of questions
    curve: Curve  # a single point


def choose_stop(simulation: Simulation, loss: float, questions: Labels) -> int:
    """Which stop spends least on these questions and loses at most so much mean accuracy against spending everything."""
    accuracy_T = simulation.adaptive.accuracy_TQ[:, questions].mean(axis=1)
    spent_T = simulation.adaptive.spent_TQ[:, questions].mean(axis=1)
    # Sums of equal numbers in another order may differ in the last digit.
    good_T = accuracy_T >= accuracy_T[-1] - loss - 1e-12
    return int(np.argmin(np.where(good_T, spent_T, np.inf)))


def cross_fit(simulation: Simulation, loss: float, *, folds: int = 5, seed: int = 0) -> Policy:
    """Spend on each fold of questions with the stop that was chosen on the others.

    Args:
        simulation: a rule over its thresholds and limits.
        loss: of mean accuracy that the choice may cost; on other questions it can turn out larger or smaller.
        folds: 2 or more.
        seed: of the folds.

    Raises:
        ValueError: fewer than two folds, or fewer questions than folds.
    """
    questions = simulation.adaptive.accuracy_TQ.shape[1]
    if not 2 <= folds <= questions:
        raise ValueError(
            f"{questions} questions cannot be cut into {folds} folds: at least 2, and no more than questions"
        )
    fold_Q = np.random.default_rng(seed).permutation(questions) % folds
    chosen = [choose_stop(simulation, loss, np.flatnonzero(fold_Q != fold)) for fold in range(folds)]
    point_Q, every_Q = np.array(chosen)[fold_Q], np.arange(questions)
    curve = Curve(
        simulation.adaptive.accuracy_TQ[point_Q, every_Q][None], simulation.adaptive.spent_TQ[point_Q, every_Q][None]
    )
    return Policy([simulation.stops[point] for point in chosen], curve)


def samples_needed(points: _Points, target: float) -> float:
    """Fewest traces that must be spent on average to reach an accuracy, at a point or between two; NaN if it is not reached."""
    accuracy_T, spent_T = points
    above = accuracy_T >= target
    if not above.any():
        return float("nan")
    fewest = float(spent_T[above].min())
    below = accuracy_T < target
    if not below.any():
        return fewest
    low_L1, cheap_L1 = accuracy_T[below][:, None], spent_T[below][:, None]
    share_LH = (target - low_L1) / (accuracy_T[above] - low_L1)
    return min(fewest, float((cheap_L1 + share_LH * (spent_T[above] - cheap_L1)).min()))


def saving(fixed: Curve, adaptive: Curve, loss: float, *, draws: int = 1000, seed: int = 0) -> Estimate:
    """Saving along the curve of a rule, at the accuracy of all traces of `fixed` less some loss.

    The points of the curve are looked at with the questions they are measured on: `policy_saving` is what one gets elsewhere.

    Args:
        fixed: by number of traces; it may be of another strategy, and its last point sets the accuracy.
        adaptive: by threshold and limit.
        loss: of mean accuracy, 0 or more.
        draws: of questions, for the 95 % percentile interval; those in which the accuracy is not reached are left out.
        seed: of the draws.
    """

    def ratio(ours: _Points, theirs: _Points) -> float:
        target = float(theirs[0][-1]) - loss - 1e-12
        return samples_needed(theirs, target) / samples_needed(ours, target)

    return _estimate(ratio, fixed, adaptive, draws, seed)


def policy_saving(fixed: Curve, policy: Policy, *, draws: int = 1000, seed: int = 0) -> Estimate:
    """Saving of a cross-fitted rule, at the accuracy that it has, or the best of `fixed` where it is better than that.

    The interval is over draws of questions; the stops stay as they were chosen.
    """

    def ratio(ours: _Points, theirs: _Points) -> float:
        target = min(float(ours[0][0]), float(theirs[0].max()))
        return samples_needed(theirs, target) / float(ours[1][0])

    return _estimate(ratio, fixed, policy.curve, draws, seed)


def _estimate(
    ratio: Callable[[_Points, _Points], float], fixed: Curve, adaptive: Curve, draws: int, seed: int
) -> Estimate:
    random, questions = np.random.default_rng(seed), fixed.accuracy_TQ.shape[1]
    drawn = []
    for _ in range(draws):
        times_Q = np.bincount(random.integers(questions, size=questions), minlength=questions) / questions
        drawn.append(ratio(*((c.accuracy_TQ @ times_Q, c.spent_TQ @ times_Q) for c in (adaptive, fixed))))
    kept = np.array(drawn)[~np.isnan(drawn)]
    low, high = np.percentile(kept, [2.5, 97.5]) if len(kept) else (float("nan"), float("nan"))
    return Estimate(ratio(adaptive.points(), fixed.points()), float(low), float(high))
