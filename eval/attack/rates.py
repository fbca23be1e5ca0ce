"""Shares of cases, with intervals that know that cases of one question belong together."""

from collections.abc import Sequence
from math import isnan, sqrt

import numpy as np
from pydantic import BaseModel, ConfigDict

from eval.metrics import Floats, Labels, clustered_bootstrap

_Z = 1.959964  # 95 %


class Rate(BaseModel):
    """A count, of how many, and the share with its 95 % interval; null where there is nothing to share."""

    model_config = ConfigDict(frozen=True)

    count: int
    of: int
    value: float | None
    low: float | None
    high: float | None


class Mean(BaseModel):
    """A mean with its 95 % interval; null where there is nothing to take it of."""

    model_config = ConfigDict(frozen=True)

    of: int
    value: float | None
    low: float | None
    high: float | None


def rate(flags: Sequence[bool], clusters: Sequence[str]) -> Rate:
    """A share with Wilson's interval at the effective number of cases.

    That number is the number of cases over the design effect, the variance of the share with whole clusters drawn over that
    with single cases drawn, where it is above 1. Where all flags are equal the effect cannot be seen, and the number of
    clusters stands for it: never narrower than is known. One case a cluster gives Wilson's own interval.

    Args:
        flags: [N] whether what is counted happened.
        clusters: [N] the question of each case.
    """
    if not flags:
        return Rate(count=0, of=0, value=None, low=None, high=None)
    hits = np.asarray(flags, dtype=np.float64)
    _, group = np.unique(np.asarray(clusters), return_inverse=True)
    share, count = float(hits.mean()), len(hits)
    spread = share * (1 - share)
    effective = float(group.max() + 1)
    if spread > 0:
        residuals = np.bincount(group, weights=hits - share)
        effective = count / max(float((residuals**2).sum()) / count / spread, 1.0)
    low, high = _wilson(share, effective)
    return Rate(count=int(hits.sum()), of=count, value=share, low=low, high=high)


def mean(values: Sequence[float], clusters: Sequence[str]) -> Mean:
    """A mean with a percentile interval over draws of whole clusters."""
    if not values:
        return Mean(of=0, value=None, low=None, high=None)
    scores = np.asarray(values, dtype=np.float64)
    estimate = clustered_bootstrap(_mean, np.zeros(len(scores), dtype=np.int64), scores, clusters)
    low, high = (None if isnan(limit) else limit for limit in (estimate.low, estimate.high))
    return Mean(of=len(scores), value=estimate.value, low=low, high=high)


def _mean(_: Labels, scores: Floats) -> float:
    return float(scores.mean())


def _wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson 1927: the shares from which one is not further away than 1.96 of its own standard errors."""
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z * sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2)) / (1 + _Z**2 / count)
    return max(0.0, middle - half), min(1.0, middle + half)
