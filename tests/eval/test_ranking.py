import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.ranking import mean, ndcg, recall, reciprocal_rank

GRADES = {"a": 3, "b": 2, "c": 0, "d": 1}


def test_ndcg_by_hand() -> None:
    # Gains 0, 3, 0 (unjudged), 1 at ranks 1 to 4; the ideal order is a, b, d.
    found = 3 / math.log2(3) + 1 / math.log2(5)
    ideal = 3 + 2 / math.log2(3) + 1 / 2
    assert ndcg(["c", "a", "x", "d"], GRADES, 10) == pytest.approx(found / ideal)


def test_ndcg_cuts_the_ranking_and_the_ideal() -> None:
    assert ndcg(["c", "a"], GRADES, 1) == 0
    assert ndcg(["b", "a"], GRADES, 1) == pytest.approx(2 / 3)
    assert ndcg(["a", "b", "d"], GRADES, 2) == pytest.approx(1)


def test_recall_by_hand() -> None:
    assert recall(["c", "a", "x", "d", "b"], GRADES, 3) == pytest.approx(1 / 3)
    assert recall(["c", "a", "x", "d", "b"], GRADES, 5) == 1


def test_reciprocal_rank_by_hand() -> None:
    assert reciprocal_rank(["c", "x", "d", "a"], GRADES) == pytest.approx(1 / 3)
    assert reciprocal_rank(["c", "x"], GRADES) == 0


@pytest.mark.parametrize("grades", [{}, {"a": 0}, {"a": -1}])
def test_nothing_relevant_is_zero(grades: dict[str, int]) -> None:
    assert ndcg(["a"], grades, 10) == recall(["a"], grades, 10) == reciprocal_rank(["a"], grades) == 0


def test_nothing_found_is_zero() -> None:
    assert ndcg([], GRADES, 10) == recall([], GRADES, 3) == reciprocal_rank([], GRADES) == 0


def test_figures_are_those_of_trec_eval() -> None:
    """The expected values are what pytrec_eval-terrier 0.5.11 gives as ndcg_cut_10, recall_3 and recip_rank."""
    ranked = ["d22", "d2", "d6", "d18", "d7", "d20", "d4", "d17", "d14", "d23", "d1"]
    grades = dict.fromkeys(["d1", "d15", "d6", "d22", "d4", "d24", "d0", "d10", "d14"], 0)
    grades |= dict.fromkeys(["d13", "d9", "d20", "d18", "d17"], 1)
    grades |= dict.fromkeys(["d8", "d12", "d11", "d2", "d5"], 2)
    grades |= dict.fromkeys(["d16", "d23", "d19", "d21", "d7", "d3"], 3)
    figures = (ndcg(ranked, grades, 10), recall(ranked, grades, 3), reciprocal_rank(ranked, grades))
    assert figures == pytest.approx((0.354425, 0.0625, 0.5), abs=1e-6)


@given(st.permutations(list("abcdefghijkl")), st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(0, 3)))
def test_figures_are_shares_and_better_orders_are_never_worse(ranked: list[str], grades: dict[str, int]) -> None:
    value = ndcg(ranked, grades, 10)
    assert 0 <= value <= 1 + 1e-12
    assert 0 <= recall(ranked, grades, 3) <= recall(ranked, grades, 10) <= 1
    best = sorted(ranked, key=lambda document: -grades.get(document, 0))
    assert ndcg(best, grades, 10) == pytest.approx(1 if any(grades.values()) else 0)


def test_the_mean_with_its_interval() -> None:
    values = [number / 99 for number in range(100)]
    estimate = mean(values)
    assert estimate == mean(values)
    assert estimate != mean(values, seed=1)
    assert estimate.value == pytest.approx(0.5)
    # The normal approximation of the interval is 0.5 ± 1.96 * 0.29 / 10.
    assert (estimate.low, estimate.high) == pytest.approx((0.443, 0.557), abs=0.01)
    assert mean([0.25]).low == mean([0.25]).high == 0.25
    with pytest.raises(ValueError, match="nothing to measure"):
        mean([])
