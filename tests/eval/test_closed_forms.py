"""Formulas against counting all subsets."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from candidate_fakes import Asked, candidates_of, expected, questions
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.candidates import Candidates
from eval.closed_forms import any_right_at, best_of_n_at, mean_accuracy
from verifier.selection import Strategy


@settings(max_examples=40)
@given(questions(most=7), st.integers(1, 9))
def test_best_of_n(asked: list[Asked], n: int) -> None:
    by_definition = [float(expected(Strategy.BEST, one, n)) for one in asked]
    assert best_of_n_at(candidates_of(asked), n) == pytest.approx(by_definition, abs=1e-12)


@settings(max_examples=40)
@given(questions(most=7), st.integers(1, 9))
def test_any_right(asked: list[Asked], n: int) -> None:
    batch, by_definition = candidates_of(asked), []
    for one in asked:
        subsets = list(combinations(one.traces, min(n, len(one.traces))))
        hits = sum(any(trace.answer == one.gold for trace in subset) for subset in subsets)
        by_definition.append(float(Fraction(hits, len(subsets))))
    assert any_right_at(batch.right, batch.counts, n) == pytest.approx(by_definition, abs=1e-12)


@settings(max_examples=40)
@given(questions(most=7))
def test_the_mean_counts_the_unreadable_as_wrong_and_is_what_one_trace_reaches(asked: list[Asked]) -> None:
    batch = candidates_of(asked)
    by_hand = [sum(trace.answer == one.gold for trace in one.traces) / len(one.traces) for one in asked]
    assert mean_accuracy(batch.right, batch.counts).tolist() == by_hand
    assert best_of_n_at(batch, 1) == pytest.approx(by_hand)
    assert any_right_at(batch.right, batch.counts, 1) == pytest.approx(by_hand)


def test_a_question_without_traces_is_answered_wrongly() -> None:
    nothing = np.full((1, 2), -1)
    batch = Candidates(
        nothing, np.zeros((1, 2), dtype=np.bool_), np.full((1, 2), np.nan), nothing, np.zeros(1, np.int64)
    )
    right = batch.right, batch.counts
    assert [mean_accuracy(*right)[0], any_right_at(*right, 2)[0], best_of_n_at(batch, 2)[0]] == [0, 0, 0]


@pytest.mark.parametrize("n", [0, -1])
def test_nothing_drawn_is_refused(n: int) -> None:
    batch = Candidates(
        np.zeros((1, 1), np.int64),
        np.ones((1, 1), np.bool_),
        np.ones((1, 1)),
        np.ones((1, 1), np.int64),
        np.zeros(1, np.int64),
    )
    with pytest.raises(ValueError, match="at least one trace"):
        any_right_at(batch.right, batch.counts, n)
