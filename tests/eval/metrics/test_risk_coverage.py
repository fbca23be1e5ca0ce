import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_rows import ROWS, columns_of, labels_of, scores_of

from eval.metrics import Abstention, Floats, Labels, abstention, aurc, risk_coverage

Rows = list[tuple[int, float, int]]


def by_steps(labels: Labels, scores: Floats, steps: int = 400) -> float:
    """Mean risk over coverages, every trace cut into small pieces and equal confidences mixed."""
    order = np.argsort(-np.maximum(scores, 1 - scores), kind="stable")
    sure, wrong = np.maximum(scores, 1 - scores)[order], ((scores > 0.5) != (labels == 1))[order].astype(float)
    for confidence in np.unique(sure):
        wrong[sure == confidence] = wrong[sure == confidence].mean()
    errors = np.cumsum(np.repeat(wrong, steps))
    return float((errors / np.arange(1, len(errors) + 1)).mean())


@given(ROWS)
def test_the_area_is_the_mean_risk(rows: Rows) -> None:
    labels, scores, _ = columns_of(rows)
    assert aurc(labels, scores) == pytest.approx(by_steps(labels, scores), abs=0.01)


@given(ROWS, st.integers(0, 99))
def test_neither_order_nor_copies_matter(rows: Rows, seed: int) -> None:
    labels, scores, weights = columns_of(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    assert aurc(labels[order], scores[order]) == pytest.approx(aurc(labels, scores))
    assert aurc(np.repeat(labels, 3), np.repeat(scores, 3)) == pytest.approx(aurc(labels, scores))
    copies = np.repeat(np.arange(len(rows)), weights.astype(np.int64))
    assert aurc(labels, scores, weights) == pytest.approx(aurc(labels[copies], scores[copies]), nan_ok=True)


def test_by_hand() -> None:
    labels, scores = labels_of([1, 0, 1, 0]), scores_of([1.0, 0.0, 0.25, 0.75])  # sure and right, unsure and wrong
    curve = risk_coverage(labels, scores)
    assert curve.thresholds.tolist() == [1.0, 0.75]
    assert curve.coverage.tolist() == [0.5, 1.0]
    assert curve.accuracy.tolist() == [1.0, 0.5]
    assert aurc(labels, scores) == pytest.approx(0.5 - 0.5 * math.log(2))  # the integral of (c - 1/2) / c from 1/2 to 1
    assert aurc(labels, scores_of([0.75] * 4)) == pytest.approx(0.5)  # confidence that says nothing: the error rate
    assert aurc(labels_of([1, 0]), scores_of([0.75, 0.25])) == 0
    assert math.isnan(aurc(labels_of([]), scores_of([])))
    assert len(risk_coverage(labels_of([]), scores_of([])).coverage) == 0


def test_the_threshold_answers_as_much_as_the_wish_allows() -> None:
    labels, scores = labels_of([1, 0, 1, 1, 0]), scores_of([1.0, 0.125, 0.25, 0.625, 0.5])
    # Right, right, wrong, right, right (0.5 is no 1), from sure to unsure.
    assert abstention(labels, scores, 1.0) == Abstention(0.875, 0.4, 1.0)
    assert abstention(labels, scores, 0.75) == Abstention(0.5, 1.0, 0.8)
    assert abstention(labels, scores, 0.81) == Abstention(0.875, 0.4, 1.0)
    assert abstention(labels_of([0]), scores_of([0.75]), 0.5) is None
    assert abstention(labels_of([]), scores_of([]), 0.5) is None
