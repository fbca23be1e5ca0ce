import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.metrics import Floats, Labels, auroc, balanced_accuracy, clustered_bootstrap


def labels_of(values: object) -> Labels:
    return np.asarray(values, dtype=np.int64)


def scores_of(values: object) -> Floats:
    return np.asarray(values, dtype=np.float64)


def pairwise(labels: list[int], scores: list[float]) -> float:
    """The definition: every right trace against every wrong one."""
    right = [score for label, score in zip(labels, scores, strict=True) if label]
    wrong = [score for label, score in zip(labels, scores, strict=True) if not label]
    wins = [(one > other) + (one == other) / 2 for one, other in itertools.product(right, wrong)]
    return sum(wins) / len(wins) if wins else math.nan


few_scores = st.sampled_from([0.0, 0.25, 0.5, 1.0])  # so that ties are the rule
rows = st.lists(st.tuples(st.integers(0, 1), st.one_of(few_scores, st.floats(0, 1))), min_size=1, max_size=30)


@given(rows)
def test_auroc_is_what_its_definition_says(rows: list[tuple[int, float]]) -> None:
    labels, scores = [label for label, _ in rows], [score for _, score in rows]
    found, expected = auroc(labels_of(labels), scores_of(scores)), pairwise(labels, scores)
    assert found == pytest.approx(expected, nan_ok=True)


@given(rows)
def test_auroc_turns_round_with_the_scores(rows: list[tuple[int, float]]) -> None:
    labels, scores = labels_of([label for label, _ in rows]), scores_of([score for _, score in rows])
    assert auroc(labels, -scores) == pytest.approx(1 - auroc(labels, scores), nan_ok=True)


@pytest.mark.parametrize(
    ("labels", "scores", "value"),
    [
        ([0, 1], [0.1, 0.9], 1.0),
        ([0, 1], [0.9, 0.1], 0.0),
        ([0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5], 0.5),
        ([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], 0.75),
        ([1, 1], [0.1, 0.2], math.nan),
        ([0], [0.1], math.nan),
    ],
)
def test_auroc_by_hand(labels: list[int], scores: list[float], value: float) -> None:
    assert auroc(labels_of(labels), scores_of(scores)) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("labels", "verdicts", "value"),
    [
        ([1, 1, 1, 0], [1, 1, 1, 0], 1.0),
        ([1, 1, 1, 0], [1, 1, 1, 1], 0.5),  # always saying yes earns nothing, however common the right traces are
        ([1, 1, 1, 0], [1, 1, 0, 0], (2 / 3 + 1) / 2),
        ([1, 0, 0], [0, 1, 1], 0.0),
        ([1, 1], [1, 0], math.nan),
    ],
)
def test_balanced_accuracy_by_hand(labels: list[int], verdicts: list[int], value: float) -> None:
    assert balanced_accuracy(labels_of(labels), labels_of(verdicts)) == pytest.approx(value, nan_ok=True)


def mean(_: Labels, scores: Floats) -> float:
    return float(scores.mean())


RANDOM = np.random.default_rng(3)
LABELS = labels_of(RANDOM.integers(0, 2, 80))
SCORES = scores_of(np.clip(LABELS * 0.2 + RANDOM.random(80), 0, 1))
ALONE = [f"q{row}" for row in range(80)]
TOGETHER = [f"q{row // 8}" for row in range(80)]


def test_the_interval_holds_the_value_and_is_the_same_each_time() -> None:
    first, second = (clustered_bootstrap(auroc, LABELS, SCORES, TOGETHER) for _ in range(2))
    assert first == second
    assert first.value == auroc(LABELS, SCORES)
    assert first.low < first.value < first.high
    assert clustered_bootstrap(auroc, LABELS, SCORES, TOGETHER, seed=1) != first


def test_copies_are_no_evidence() -> None:
    """Ten questions with eight copies each know no more than ten questions: the interval must not be narrower."""
    ten = scores_of(RANDOM.random(10))
    copies = np.repeat(ten, 8)
    honest = clustered_bootstrap(mean, LABELS[:10], ten, ALONE[:10])
    clustered = clustered_bootstrap(mean, LABELS, copies, TOGETHER)
    naive = clustered_bootstrap(mean, LABELS, copies, ALONE)
    width = {name: e.high - e.low for name, e in {"honest": honest, "clustered": clustered, "naive": naive}.items()}
    assert width["clustered"] == pytest.approx(width["honest"])
    assert width["clustered"] > 2 * width["naive"]


def test_the_order_of_rows_and_the_names_of_questions_do_not_matter() -> None:
    one = clustered_bootstrap(mean, LABELS, SCORES, TOGETHER)
    renamed = clustered_bootstrap(mean, LABELS, SCORES, [f"a{name}" for name in TOGETHER])
    assert one == renamed


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random, covered, clusters = np.random.default_rng(5), 0, [f"q{row // 3}" for row in range(90)]
    for _ in range(100):
        scores = scores_of(np.repeat(random.normal(size=30), 3) + random.normal(size=90))
        estimate = clustered_bootstrap(mean, np.ones(90, np.int64), scores, clusters, samples=200)
        covered += estimate.low <= 0 <= estimate.high
    assert 86 <= covered <= 99


def test_draws_without_a_value_are_left_out_and_none_gives_no_interval() -> None:
    two = clustered_bootstrap(auroc, labels_of([0, 1]), scores_of([0.2, 0.8]), ["a", "b"])
    assert (two.value, two.low, two.high) == (1.0, 1.0, 1.0)
    one = clustered_bootstrap(auroc, labels_of([1, 1]), scores_of([0.2, 0.8]), ["a", "b"])
    assert all(math.isnan(value) for value in (one.value, one.low, one.high))
