"""How sure a figure is: 95 % intervals and paired tests that draw whole questions, whose traces are not independent.

A draw takes as many questions as there are, with replacement. It is a weighting of the traces, and metrics compute hundreds of
weightings at once. Intervals are read from the draws in one of three ways, of which `benchmarks/intervals.py` says how often
they hold the truth:

- `percentile`: quantiles of the draws; for differences;
- `bca`: quantiles that are corrected for bias and skewness (Efron 1987), the acceleration from a jackknife over blocks of
  questions; for single metrics;
- `pivotal`: quantiles mirrored at the value; for what resampling inflates (`Metric.inflated`), where draws lie above the value
  as the value lies above the truth.

Few questions vary more than their draws show, so all quantiles are moved outwards as Student's t is wider than a normal
(Hesterberg 2015, "expanded percentile").
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from eval.metrics.metric import Floats, Labels, Metric, check

Method = Literal["percentile", "bca", "pivotal"]
Statistic = Callable[[Floats], Floats]  # weights [S, N] to values [S]

SAMPLES = 1000
_NORMAL = NormalDist()
_LEVEL = 0.95
_AT_ONCE = 1_000_000  # weights in memory at once
_BLOCKS = 200  # of questions in the jackknife
_SAME = 1e-12  # values closer than this are equal: sums over differently weighted rows differ in their last bits


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Two judges on the same traces."""

    first: float
    second: float
    difference: Estimate  # first - second
    p_value: float  # two-sided, of no difference; NaN for inflated metrics, whose tests would find too much


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
        reach = _widened(_NORMAL.inv_cdf((1 + _LEVEL) / 2), self.questions)
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
        return 2 * _NORMAL.cdf(-_narrowed(abs(z), self.questions))

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

    Draws in which the metric is undefined are left out. The interval of an inflated metric begins at 0 at the earliest and holds
    the value, be it as its upper end.

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
    weighted = metric.weighted if isinstance(metric, Metric) else _repeating(metric)
    resampled = resample(lambda w: weighted(labels, scores, w), clusters, samples=samples, seed=seed)
    if not (isinstance(metric, Metric) and metric.inflated):
        return resampled.interval()
    found = resampled.interval("pivotal")
    return Estimate(found.value, min(max(found.low, 0.0), found.value), max(found.high, found.value))


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
    found = resampled.interval("pivotal" if metric.inflated else "percentile")
    p_value = float("nan") if metric.inflated else resampled.p_value()
    return Difference(metric(labels, first), metric(labels, second), found, p_value)


def resample(statistic: Statistic, clusters: Sequence[str], *, samples: int = SAMPLES, seed: int = 0) -> Resampled:
    """Compute a statistic on the traces, on draws of questions, and without each block of questions."""
    names, group = np.unique(np.asarray(clusters), return_inverse=True)
    if not len(names):
        return Resampled(float("nan"), np.empty(0), np.empty(0), 0)
    value = float(statistic(np.ones((1, len(group))))[0])
    if len(names) == 1:  # nothing to draw among, and nothing is left without it
        return Resampled(value, np.empty(0), np.empty(0), 1)
    random = np.random.default_rng(seed)
    at_once = max(1, _AT_ONCE // len(group))
    draws = []
    for start in range(0, samples, at_once):
        drawn = random.integers(len(names), size=(min(at_once, samples - start), len(names)))
        draws.append(statistic(_counts(drawn, len(names))[:, group]))
    blocks = min(len(names), _BLOCKS)
    block = (group % blocks)[np.newaxis]
    left_out = []
    for start in range(0, blocks, at_once):
        numbers = np.arange(start, min(start + at_once, blocks))[:, np.newaxis]
        left_out.append(statistic((block != numbers).astype(np.float64)))
    return Resampled(value, _defined(draws), _defined(left_out), len(names))


def _counts(drawn: Labels, questions: int) -> Floats:
    """How often each question was drawn, [S, Q]."""
    flat = drawn + np.arange(len(drawn))[:, np.newaxis] * questions
    counts = np.bincount(flat.ravel(), minlength=len(drawn) * questions)
    return counts.reshape(len(drawn), questions).astype(np.float64)


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


def _widened(z: float, questions: int) -> float:
    """The normal quantile to look for instead of `z`: sqrt(n / (n - 1)) t, with Student's t by Cornish-Fisher's expansion."""
    freedom = questions - 1
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    t = z + sum(term / freedom**power for power, term in enumerate(terms, start=1))
    return float(np.sqrt(questions / freedom) * t)


def _narrowed(z: float, questions: int) -> float:
    """The inverse of `_widened`, for z from 0 on, by halving."""
    low, high = 0.0, z
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _widened(middle, questions) < z else (low, middle)
    return (low + high) / 2
