"""Draws of whole questions, whose traces are not independent, and how far out the limits of an interval lie among them.

A draw takes as many questions as there are, with replacement. It is a weighting of the traces: how often each was drawn. Few
questions vary more than their draws show, so all quantiles are moved outwards as Student's t is wider than a normal
(Hesterberg 2015, "expanded percentile").
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from eval.metrics.metric import Floats, Labels

SAMPLES = 1000
LEVEL = 0.95
_NORMAL = NormalDist()
_AT_ONCE = 1_000_000  # weights in memory at once


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def question_draws(group: Labels, samples: int, seed: int) -> Iterator[Floats]:
    """Weights [S, N] of so many draws, a part of them at a time.

    Args:
        group: the question of each trace, int64 [N], numbered from 0 without a gap.
        samples: draws in all.
        seed: of the draws.
    """
    random, questions, several = np.random.default_rng(seed), int(group.max()) + 1, at_once(len(group))
    for start in range(0, samples, several):
        drawn = random.integers(questions, size=(min(several, samples - start), questions))
        yield _counts(drawn, questions)[:, group]


def at_once(traces: int) -> int:
    """How many weightings of so many traces fit into memory."""
    return max(1, _AT_ONCE // traces)


def normal_reach(questions: int) -> float:
    """How many standard deviations from the middle of the draws the limits lie."""
    return widened(_NORMAL.inv_cdf((1 + LEVEL) / 2), questions)


def limits(draws: Floats, questions: int) -> tuple[float, float]:
    """The two quantiles of draws [S] between which the level lies."""
    reach = normal_reach(questions)
    low, high = np.quantile(draws, [_NORMAL.cdf(-reach), _NORMAL.cdf(reach)])
    return float(low), float(high)


def widened(z: float, questions: int) -> float:
    """The normal quantile to look for instead of `z`: sqrt(n / (n - 1)) t, with Student's t by Cornish-Fisher's expansion."""
    freedom = questions - 1
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    t = z + sum(term / freedom**power for power, term in enumerate(terms, start=1))
    return float(np.sqrt(questions / freedom) * t)


def narrowed(z: float, questions: int) -> float:
    """The inverse of `widened`, for z from 0 on, by halving."""
    low, high = 0.0, z
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if widened(middle, questions) < z else (low, middle)
    return (low + high) / 2


def _counts(drawn: Labels, questions: int) -> Floats:
    """How often each question was drawn, [S, Q]."""
    flat = drawn + np.arange(len(drawn))[:, np.newaxis] * questions
    counts = np.bincount(flat.ravel(), minlength=len(drawn) * questions)
    return counts.reshape(len(drawn), questions).astype(np.float64)
