"""Numbers on their way into a report, where what is undefined is null."""

import math
from collections.abc import Sequence

import numpy as np

from eval.metrics import Estimate, Floats, bootstrap
from eval.metrics.metric import share
from eval.report.schema import Figure

#: Digits that are kept: beyond what anything here means, and short of where sums depend on the order of their terms.
_DIGITS = 9


def number(value: float) -> float | None:
    """The value, or None for NaN."""
    return None if math.isnan(value) else round(value, _DIGITS)


def figure(estimate: Estimate) -> Figure:
    """An estimate for the report."""
    return Figure(value=number(estimate.value), low=number(estimate.low), high=number(estimate.high))


def mean_figure(values: Floats) -> Figure:
    """Mean over questions [Q], with its interval; questions without a value (NaN) are left out."""
    known = values[~np.isnan(values)]
    return ratio_figure(known, np.ones(len(known)), [str(row) for row in range(len(known))])


def ratio_figure(parts: Floats, wholes: Floats, questions: Sequence[str]) -> Figure:
    """Sum of parts over sum of wholes, both [N], with its interval over questions."""
    return figure(bootstrap(lambda weights: share(weights @ parts, weights @ wholes), questions))
