import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from eval.metrics import Labels, bootstrap, fleiss_kappa, pairwise_agreement


def verdicts_of(rows: list[list[int]]) -> Labels:
    return np.asarray(rows, dtype=np.int64)


TABLES = st.integers(2, 5).flatmap(lambda k: st.lists(st.lists(st.integers(-1, 1), min_size=k, max_size=k), min_size=1))


@given(TABLES)
def test_pairwise_agreement_is_the_mean_over_traces_of_agreeing_pairs(rows: list[list[int]]) -> None:
    shares = []
    for row in rows:
        pairs = list(itertools.combinations([verdict for verdict in row if verdict >= 0], 2))
        if pairs:
            shares.append(sum(one == other for one, other in pairs) / len(pairs))
    expected = sum(shares) / len(shares) if shares else math.nan
    assert pairwise_agreement(verdicts_of(rows)) == pytest.approx([expected], nan_ok=True)


def test_fleiss_kappa_of_the_usual_example() -> None:
    """Ten subjects, fourteen raters, five categories: 0.210."""
    counts = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    verdicts = verdicts_of([np.repeat(np.arange(5), row).tolist() for row in counts])
    assert fleiss_kappa(verdicts)[0] == pytest.approx(0.210, abs=5e-4)


def test_with_the_same_habits_two_seeds_have_cohen_s_kappa() -> None:
    """Where both give each verdict as often, the kappas of Fleiss and of Cohen are one."""
    rows = [[1, 1]] * 30 + [[0, 0]] * 20 + [[0, 1]] * 5 + [[1, 0]] * 5
    one, other = verdicts_of(rows).T
    assert fleiss_kappa(verdicts_of(rows))[0] == pytest.approx(cohen_kappa_score(one, other))


@pytest.mark.parametrize(
    ("rows", "agreement", "kappa"),
    [
        ([[1, 1], [0, 0]], 1.0, 1.0),
        ([[1, 0], [0, 1]], 0.0, -1.0),
        ([[1, 1], [1, 1]], 1.0, math.nan),  # nothing but 1 was ever said: chance would do as well
        ([[1, -1], [-1, -1]], math.nan, math.nan),
        ([[1, 1, -1], [0, 0, 0], [1, -1, -1]], 1.0, 1.0),
    ],
)
def test_by_hand(rows: list[list[int]], agreement: float, kappa: float) -> None:
    assert pairwise_agreement(verdicts_of(rows))[0] == pytest.approx(agreement, nan_ok=True)
    assert fleiss_kappa(verdicts_of(rows))[0] == pytest.approx(kappa, nan_ok=True)


@given(TABLES, st.integers(0, 99))
def test_a_weight_is_a_number_of_copies(rows: list[list[int]], seed: int) -> None:
    verdicts, weights = verdicts_of(rows), np.random.default_rng(seed).integers(0, 3, len(rows))
    copies = np.repeat(verdicts, weights, axis=0)
    for measure in (pairwise_agreement, fleiss_kappa):
        weighted = measure(verdicts, weights[np.newaxis].astype(np.float64))
        assert weighted == pytest.approx(measure(copies), nan_ok=True)


def test_agreement_has_an_interval_over_questions() -> None:
    verdicts = verdicts_of([[1, 1], [0, 0], [0, 1], [1, 1], [0, 0], [1, 0]])
    questions = ["a", "a", "b", "b", "c", "c"]
    found = bootstrap(lambda weights: pairwise_agreement(verdicts, weights), questions)
    assert found.value == pytest.approx(4 / 6)
    assert found.low < found.value < found.high
