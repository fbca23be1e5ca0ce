import dataclasses

import numpy as np
import pytest
from candidate_fakes import Asked, candidates_of, questions
from hypothesis import given, settings

from eval.candidates import Candidates
from eval.judgeless import answer_frequency, longest, shortest
from eval.scaling import accuracy_at
from verifier.selection import Strategy

LENGTHS = np.array([[10.0, 40, 20], [0, 0, np.nan], [5, np.nan, np.nan]])


def test_the_longest_and_the_shortest_trace_win() -> None:
    np.testing.assert_array_equal(longest(LENGTHS), [[0.25, 1, 0.5], [0, 0, np.nan], [1, np.nan, np.nan]])
    np.testing.assert_array_equal(shortest(LENGTHS), [[0.75, 0, 0.5], [1, 1, np.nan], [0, np.nan, np.nan]])


def test_lengths_choose_as_a_judge_does() -> None:
    batch = Candidates(
        np.array([[0, 1, 2]]), np.ones((1, 3), np.bool_), np.full((1, 3), np.nan), np.full((1, 3), -1), np.array([1])
    )
    for p_QM, accuracy in ((longest(LENGTHS[:1]), 1), (shortest(LENGTHS[:1]), 0)):
        assert accuracy_at(Strategy.BEST, dataclasses.replace(batch, p_QM=p_QM), 3) == [accuracy]


@settings(max_examples=40)
@given(questions(most=7))
def test_the_frequency_of_an_answer(asked: list[Asked]) -> None:
    batch = candidates_of(asked)
    for row_M, one in zip(answer_frequency(batch), asked, strict=True):
        given_answers = [trace.answer for trace in one.traces]
        by_hand = [np.nan if a is None else given_answers.count(a) / len(given_answers) for a in given_answers]
        assert row_M[: len(by_hand)] == pytest.approx(by_hand, nan_ok=True)
        assert np.isnan(row_M[len(by_hand) :]).all()


@settings(max_examples=40)
@given(questions(most=7))
def test_the_most_frequent_is_chosen_as_the_majority_is(asked: list[Asked]) -> None:
    batch = candidates_of(asked)
    counted = dataclasses.replace(batch, p_QM=answer_frequency(batch))
    majority = accuracy_at(Strategy.MAJORITY, batch, 7)
    for strategy in (Strategy.BEST, Strategy.SOFT):
        assert accuracy_at(strategy, counted, 7) == pytest.approx(majority)
