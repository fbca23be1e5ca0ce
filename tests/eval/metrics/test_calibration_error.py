import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from metric_rows import MIXED, ROWS, columns_of, labels_of, scores_of
from sklearn import metrics as theirs
from sklearn.calibration import calibration_curve

from eval.metrics import Metric, brier, ece, ece_equal_mass, log_loss, reliability_curve
from eval.metrics.calibration_error import BINS

Rows = list[tuple[int, float, int]]


@given(MIXED)
def test_brier_and_log_loss_equal_scikit_learn_s_with_weights(rows: Rows) -> None:
    labels, scores, weights = columns_of(rows)
    expected = theirs.brier_score_loss(labels, scores, sample_weight=weights)
    assert brier(labels, scores, weights) == pytest.approx(expected)
    assert log_loss(labels, scores, weights) == pytest.approx(theirs.log_loss(labels, scores, sample_weight=weights))


@given(ROWS)
def test_ece_is_what_its_definition_says(rows: Rows) -> None:
    labels, scores, weights = columns_of(rows)
    total, error = weights.sum(), 0.0
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        member = (scores * BINS >= number) & ((scores < high) if number < BINS - 1 else (scores >= low))
        if (mass := weights[member].sum()) > 0:
            gap = np.average(labels[member], weights=weights[member]) - np.average(
                scores[member], weights=weights[member]
            )
            error += mass * abs(gap)
    assert ece(labels, scores, weights) == pytest.approx(error / total if total else math.nan, nan_ok=True)


@given(ROWS)
def test_the_reliability_curve_equals_scikit_learn_s_and_adds_up_to_the_ece(rows: Rows) -> None:
    labels, scores, _ = columns_of(rows)
    # Its bins hold their upper edges and ours their lower ones, so no score is on an edge.
    inside = np.clip(scores, 0.01, 0.99)
    curve = reliability_curve(labels, inside)
    right, said = calibration_curve(labels, inside, n_bins=BINS)
    assert [point.share_right for point in curve] == pytest.approx(right)
    assert [point.mean_score for point in curve] == pytest.approx(said)
    assert sum(point.count for point in curve) == len(rows)
    error = sum(point.count * abs(point.share_right - point.mean_score) for point in curve) / len(rows)
    assert ece(labels, inside) == pytest.approx(error)


@given(ROWS)
def test_bins_of_equal_mass_add_up_and_never_part_ties(rows: Rows) -> None:
    labels, scores, _ = columns_of(rows)
    curve = reliability_curve(labels, scores, equal_mass=True)
    assert all(one.high < other.low for one, other in itertools.pairwise(curve))
    error = sum(point.count * abs(point.share_right - point.mean_score) for point in curve) / len(rows)
    assert ece_equal_mass(labels, scores) == pytest.approx(error)


def test_bins_of_equal_mass_hold_the_same_number_where_nothing_ties() -> None:
    scores = np.random.default_rng(0).random(15 * 40)
    counts = [point.count for point in reliability_curve(labels_of(scores > 0.5), scores, equal_mass=True)]
    assert counts == [40] * 15


@given(ROWS)
@pytest.mark.parametrize("metric", [brier, log_loss, ece], ids=lambda m: m.__name__)
def test_a_weight_is_a_number_of_copies(metric: Metric, rows: Rows) -> None:
    labels, scores, weights = columns_of(rows)
    copies = np.repeat(np.arange(len(rows)), weights.astype(np.int64))
    assert metric(labels, scores, weights) == pytest.approx(metric(labels[copies], scores[copies]), nan_ok=True)


@pytest.mark.parametrize(
    ("metric", "labels", "scores", "value"),
    [
        (brier, [1, 0], [0.5, 0.5], 0.25),
        (log_loss, [1, 0], [0.5, 0.5], math.log(2)),
        (ece, [1, 0, 1, 0], [0.75, 0.75, 0.0, 1.0], (0.5 + 1 + 1) / 4),
        (ece, [1, 0], [1.0, 0.0], 0.0),
        (ece_equal_mass, [1, 1], [0.25, 0.25], 0.75),
        *((metric, [], [], math.nan) for metric in (brier, log_loss, ece)),
    ],
)
def test_by_hand(metric: Metric, labels: list[int], scores: list[float], value: float) -> None:
    assert metric(labels_of(labels), scores_of(scores)) == pytest.approx(value, nan_ok=True)


def test_no_traces_have_no_curve() -> None:
    assert reliability_curve(labels_of([]), scores_of([])) == []
