import math

import numpy as np
import pytest
from hypothesis import given, settings
from metric_rows import MIXED, columns_of, labels_of, scores_of

from eval.metrics import Floats, Labels, smooth_ece


def by_definition(labels: Labels, scores: Floats, weights: Floats) -> float:
    """The fixed point, by direct sums over the reflected kernel on a fine grid."""
    grid = (np.arange(4000) + 0.5) / 4000
    mirrored = np.concatenate([[scores + 2 * turn, 2 * turn - scores] for turn in range(-3, 4)])

    def error(bandwidth: float) -> float:
        distance = grid[:, np.newaxis, np.newaxis] - mirrored
        kernel = np.exp(-((distance / bandwidth) ** 2) / 2).sum(axis=1) / (bandwidth * math.sqrt(2 * math.pi))
        return float(np.abs(kernel @ (weights * (labels - scores))).mean() / weights.sum())

    low, high = 1e-3, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    return (low + high) / 2


@given(MIXED)
@settings(max_examples=20, deadline=None)
def test_it_is_the_fixed_point_of_its_definition(rows: list[tuple[int, float, int]]) -> None:
    labels, scores, weights = columns_of(rows)
    assert smooth_ece(labels, scores, weights) == pytest.approx(by_definition(labels, scores, weights), abs=2e-3)


def test_all_weightings_at_once_are_each_by_itself() -> None:
    random = np.random.default_rng(0)
    labels, scores = labels_of(random.integers(0, 2, 50)), random.random(50)
    weights_SN = random.integers(0, 3, (7, 50)).astype(np.float64)
    together = smooth_ece.weighted(labels, scores, weights_SN)
    assert together == pytest.approx([smooth_ece(labels, scores, weights) for weights in weights_SN])


def test_it_sees_what_is_wrong_and_lets_pass_what_is_right() -> None:
    random = np.random.default_rng(1)
    p = random.random(20_000)
    honest = labels_of(random.random(20_000) < p)
    assert smooth_ece(honest, p) < 0.015
    assert smooth_ece(honest, np.full(20_000, 0.9)) == pytest.approx(0.4, abs=0.02)
    assert smooth_ece(honest, np.sqrt(p)) > 0.1
    assert smooth_ece(labels_of([0, 1]), scores_of([0.0, 1.0])) < 0.001


def test_without_traces_or_weight_it_is_undefined() -> None:
    assert math.isnan(smooth_ece(labels_of([]), scores_of([])))
    assert math.isnan(smooth_ece(labels_of([1]), scores_of([0.5]), scores_of([0.0])))
