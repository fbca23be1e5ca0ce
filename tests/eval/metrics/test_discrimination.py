import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from metric_rows import MIXED, ROWS, columns_of, labels_of, scores_of
from sklearn import metrics as theirs

from eval.metrics import Metric, accuracy, auprc, auroc, balanced_accuracy, roc_curve

Rows = list[tuple[int, float, int]]


@given(MIXED)
def test_auroc_equals_scikit_learn_s_with_ties_and_weights(rows: Rows) -> None:
    labels, scores, weights = columns_of(rows)
    assert auroc(labels, scores) == pytest.approx(theirs.roc_auc_score(labels, scores))
    expected = theirs.roc_auc_score(labels, scores, sample_weight=weights)
    assert auroc(labels, scores, weights) == pytest.approx(expected)


@given(MIXED)
def test_auprc_equals_scikit_learn_s_with_ties_and_weights(rows: Rows) -> None:
    labels, scores, weights = columns_of(rows)
    assert auprc(labels, scores) == pytest.approx(theirs.average_precision_score(labels, scores))
    expected = theirs.average_precision_score(labels, scores, sample_weight=weights)
    assert auprc(labels, scores, weights) == pytest.approx(expected)


@given(MIXED)
def test_accuracies_equal_scikit_learn_s_with_weights(rows: Rows) -> None:
    labels, scores, weights = columns_of(rows)
    verdicts = (scores > 0.5).astype(np.int64)
    for given_ in (scores, verdicts.astype(np.float64)):  # probabilities, or verdicts
        assert accuracy(labels, given_, weights) == pytest.approx(
            theirs.accuracy_score(labels, verdicts, sample_weight=weights)
        )
        assert balanced_accuracy(labels, given_, weights) == pytest.approx(
            theirs.balanced_accuracy_score(labels, verdicts, sample_weight=weights)
        )


@given(MIXED)
def test_the_roc_curve_equals_scikit_learn_s(rows: Rows) -> None:
    labels, scores, _ = columns_of(rows)
    found = roc_curve(labels, scores)
    false, true, thresholds = theirs.roc_curve(labels, scores, drop_intermediate=False)
    assert found.false_positive_rate == pytest.approx(false)
    assert found.true_positive_rate == pytest.approx(true)
    assert found.thresholds[1:] == pytest.approx(thresholds[1:])


@given(ROWS)
def test_auroc_is_what_its_definition_says(rows: Rows) -> None:
    right = [score for label, score, _ in rows if label]
    wrong = [score for label, score, _ in rows if not label]
    wins = [(one > other) + (one == other) / 2 for one, other in itertools.product(right, wrong)]
    labels, scores, _ = columns_of(rows)
    assert auroc(labels, scores) == pytest.approx(sum(wins) / len(wins) if wins else math.nan, nan_ok=True)


@given(ROWS)
@pytest.mark.parametrize("metric", [accuracy, balanced_accuracy, auroc, auprc], ids=lambda m: m.__name__)
def test_a_weight_is_a_number_of_copies(metric: Metric, rows: Rows) -> None:
    labels, scores, weights = columns_of(rows)
    copies = np.repeat(np.arange(len(rows)), weights.astype(np.int64))
    assert metric(labels, scores, weights) == pytest.approx(metric(labels[copies], scores[copies]), nan_ok=True)


@pytest.mark.parametrize(
    ("metric", "labels", "scores", "value"),
    [
        (auroc, [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], 0.75),
        (auroc, [0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5], 0.5),
        (auroc, [1, 1], [0.1, 0.2], math.nan),
        (auroc, [], [], math.nan),
        (auprc, [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], (1 + 2 / 3) / 2),
        (auprc, [0, 0], [0.1, 0.2], math.nan),
        (balanced_accuracy, [1, 1, 1, 0], [1, 1, 1, 1], 0.5),  # always saying yes earns nothing
        (balanced_accuracy, [1, 1, 1, 0], [1, 1, 0, 0], (2 / 3 + 1) / 2),
        (balanced_accuracy, [1, 1], [1, 0], math.nan),
        (accuracy, [1, 0, 1, 0], [0.51, 0.5, 0.5, 0.49], 0.75),
        (accuracy, [], [], math.nan),
    ],
)
def test_by_hand(metric: Metric, labels: list[int], scores: list[float], value: float) -> None:
    assert metric(labels_of(labels), scores_of(scores)) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([0, -1], [0.1, 0.2], "labels are 0 or 1"),
        ([0, 1], [0.1, math.nan], "a score is NaN"),
        ([0, 1], [0.1], "as many labels as scores"),
    ],
)
def test_what_is_no_number_is_refused(labels: list[int], scores: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        auroc(labels_of(labels), scores_of(scores))
    with pytest.raises(ValueError, match=message):
        roc_curve(labels_of(labels), scores_of(scores))


def test_a_roc_curve_without_a_class_has_no_rates() -> None:
    assert np.isnan(roc_curve(labels_of([1, 1]), scores_of([0.1, 0.9])).false_positive_rate).all()
    assert np.isnan(roc_curve(labels_of([]), scores_of([])).true_positive_rate).all()
