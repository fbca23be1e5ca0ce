"""Rows for tests of metrics: labels, scores with many ties, and weights."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from eval.metrics import Floats, Labels


def labels_of(values: object) -> Labels:
    return np.asarray(values, dtype=np.int64)


def scores_of(values: object) -> Floats:
    return np.asarray(values, dtype=np.float64)


def columns_of(rows: list[tuple[Any, ...]]) -> tuple[Labels, Floats, Floats]:
    """Labels, scores and weights."""
    return labels_of([r[0] for r in rows]), scores_of([r[1] for r in rows]), scores_of([r[2] for r in rows])


#: Few values, so that ties are the rule; dyadic ones, so that 1 - p is exact. Without those whose logarithm overflows.
SCORES = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.integers(0, 1024).map(lambda n: n / 1024))
ROWS = st.lists(st.tuples(st.integers(0, 1), SCORES, st.integers(0, 3)), min_size=1, max_size=30)
#: Both classes, with weight.
MIXED = ROWS.map(lambda rows: [(0, 0.25, 1), *rows, (1, 0.5, 2)])
