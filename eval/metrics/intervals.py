"""How sure a figure is: 95 % intervals and paired tests that draw whole questions, whose traces are not independent.

A draw takes as many questions as there are, with replacement. It is a weighting of the traces, and metrics compute hundreds of
weightings at once. Intervals are read from the draws in one of three ways, of which `benchmarks/intervals.py` says how often
they hold the truth:

- `percentile`: quantiles of the draws; for differences;
- `bca`: quantiles that are corrected for bias and skewness (Efron 1987), the acceleration from a jackknife over blocks of
  questions; for single metrics;
- `pivotal`: quantiles mirrored at the value; for differences of distances (`Distance`), where draws lie above the value as the
  value lies above the truth.

A distance by itself has an interval of its own: `eval.metrics.distances`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from eval.metrics.distances import distance_interval
from eval.metrics.draws import SAMPLES, Estimate, at_once, narrowed, normal_reach, question_draws
from eval.metrics.metric import Distance, Floats, Labels, Metric, check

Method = Literal["percentile", "bca", "pivotal"]
Statistic = Callable[[Floats], Floats]  # weights [S, N] to values [S]

_NORMAL = NormalDist()
_BLOCKS = 200  # of questions in the jackknife
_SAME = 1e-12  # values closer than this are equal: sums over differently weighted rows differ in their last bits


@dataclass(frozen=True, slots=True)
class Difference:
    """Two judges on the same traces."""

    first: float
    second: float
    difference: Estimate  # first - second
    p_value: float  # two-sided, of no difference; NaN for distances, whose tests would find too much


@dataclass(frozen=True, slots=True)
class Resampled:
    """A statistic, its values in bootstrap draws, and its values when a block of questions is left out."""

    value: float
    draws: Floats  # those in which it is defined
    jackknife: Floats
    questions: int

    def interval(self, method: Method = "bca") -> Estimate:
        """The 95 % interval; NaN limits where the statistic is undefined or there is only one question."""
        if not self._sayable:
            return Estimate(self.value, float("nan"), float("nan"))
        bias, acceleration = self._shape(method)
        reach = normal_reach(self.questions)
        shares = [_NORMAL.cdf(_corrected(z, bias, acceleration)) for z in (-reach, reach)]
        low, high = np.quantile(self.draws, shares)
        if method == "pivotal":
            low, high = 2 * self.value - high, 2 * self.value - low
        return Estimate(self.value, float(low), float(high))

    def p_value(self) -> float:
        """Two-sided p-value of the statistic being 0: one minus the level of the percentile interval that just touches 0.

        It is never below 1 / draws.
        """
        if not self._sayable:
            return float("nan")
        z = _NORMAL.inv_cdf(_share_below(self.draws, 0.0))
        return 2 * _NORMAL.cdf(-narrowed(abs(z), self.questions))

    @property
    def _sayable(self) -> bool:
        return self.questions > 1 and len(self.draws) > 0 and not np.isnan(self.value)

    def _shape(self, method: Method) -> tuple[float, float]:
        """Bias and acceleration of BCa."""
        if method != "bca":
            return 0.0, 0.0
        left = self.jackknife - self.jackknife.sum() / max(len(self.jackknife), 1)
        spread = float((left**2).sum()) ** 1.5
        acceleration = -float((left**3).sum()) / (6 * spread) if spread > _SAME**2 else 0.0
        return _NORMAL.inv_cdf(_share_below(self.draws, self.value)), acceleration


def clustered_bootstrap(
    metric: Metric | Callable[[Labels, Floats], float], labels: Labels, scores: Floats, clusters: Sequence[str], *,
    samples: int = SAMPLES, seed: int = 0,
) -> Estimate:  # fmt: skip
    """A metric with its 95 % interval.

    Draws in which the metric is undefined are left out.

    Args:
        metric: one of `eval.metrics`, or any function of labels and scores, which takes longer.
        labels: int64 [N], 1 or 0.
        scores: float64 [N].
        clusters: question of each trace.
        samples: bootstrap draws.
        seed: of the draws.

    Raises:
        ValueError: labels other than 0 and 1, or scores that are NaN.
    """
    check(labels, scores)
    if isinstance(metric, Distance):
        return distance_interval(metric, labels, scores, clusters, samples=samples, seed=seed)
    weighted = metric.weighted if isinstance(metric, Metric) else _repeating(metric)
    return resample(lambda w: weighted(labels, scores, w), clusters, samples=samples, seed=seed).interval()


def bootstrap(statistic: Statistic, clusters: Sequence[str], *, samples: int = SAMPLES, seed: int = 0) -> Estimate:
    """Any statistic of weights [S, N] over the traces, with its 95 % interval; other arguments as in `clustered_bootstrap`."""
    return resample(statistic, clusters, samples=samples, seed=seed).interval()


def paired_difference(
    metric: Metric, labels: Labels, first: Floats, second: Floats, clusters: Sequence[str], *,
    samples: int = SAMPLES, seed: int = 0,
) -> Difference:  # fmt: skip
    """How much better the first judge is than the second on the same traces, with interval and p-value.

    Both are computed on the same draws of questions, so what makes questions hard for both cancels out.

    Raises:
        ValueError: labels other than 0 and 1, or scores that are NaN.
    """
    check(labels, first)
    check(labels, second)

    def difference(weights: Floats) -> Floats:
        return metric.weighted(labels, first, weights) - metric.weighted(labels, second, weights)

    resampled = resample(difference, clusters, samples=samples, seed=seed)
    is_distance = isinstance(metric, Distance)
    found = resampled.interval("pivotal" if is_distance else "percentile")
    p_value = float("nan") if is_distance else resampled.p_value()
    return Difference(metric(labels, first), metric(labels, second), found, p_value)


def resample(statistic: Statistic, clusters: Sequence[str], *, samples: int = SAMPLES, seed: int = 0) -> Resampled:
    """Compute a statistic on the traces, on draws of questions, and without each block of questions."""
    names, group = np.unique(np.asarray(clusters), return_inverse=True)
    if not len(names):
        return Resampled(float("nan"), np.empty(0), np.empty(0), 0)
    value = float(statistic(np.ones((1, len(group))))[0])
    if len(names) == 1:  # nothing to draw among, and nothing is left without it
        return Resampled(value, np.empty(0), np.empty(0), 1)
    draws = [statistic(weights) for weights in question_draws(group, samples, seed)]
    blocks = min(len(names), _BLOCKS)
    block, several = (group % blocks)[np.newaxis], at_once(len(group))
    left_out = []
    for start in range(0, blocks, several):
        numbers = np.arange(start, min(start + several, blocks))[:, np.newaxis]
        left_out.append(statistic((block != numbers).astype(np.float64)))
    return Resampled(value, _defined(draws), _defined(left_out), len(names))


def _defined(parts: list[Floats]) -> Floats:
    values = np.concatenate(parts)
    return values[~np.isnan(values)]


def _repeating(metric: Callable[[Labels, Floats], float]) -> Callable[[Labels, Floats, Floats], Floats]:
    """A function without weights, under weights that are counts."""

    def weighted(labels: Labels, scores: Floats, weights: Floats) -> Floats:
        drawn = (np.repeat(np.arange(len(labels)), counts.astype(np.int64)) for counts in weights)
        return np.asarray([metric(labels[rows], scores[rows]) for rows in drawn], dtype=np.float64)

    return weighted


def _share_below(draws: Floats, value: float) -> float:
    """Share of draws below a value, ties counting half; never 0 or 1, for more draws might have found one."""
    same = np.abs(draws - value) <= _SAME
    below = float(((draws < value) & ~same).sum() + same.sum() / 2)
    return min(max(below, 0.5), len(draws) - 0.5) / len(draws)


def _corrected(z: float, bias: float, acceleration: float) -> float:
    """Where among the draws a normal quantile lies (Efron 1987, equation 6.8)."""
    return bias + (bias + z) / max(1 - acceleration * (bias + z), _SAME)
