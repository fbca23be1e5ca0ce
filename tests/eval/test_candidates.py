import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest

from eval.candidates import Candidates, gather

QUESTIONS = ["q2", "q1", "q2", "q1", "q3", "q2"]
ANSWERS = ["B", "A", None, "C", "A", "A"]
GOLDS = ["A", "D", None, "D", None, "A"]
P = np.array([0.1, 0.2, 0.3, np.nan, 0.5, 0.6])
VERDICTS = np.array([0, 0, 1, -1, 1, 1])


def test_rows_of_a_question_come_together() -> None:
    found = gather(QUESTIONS, ANSWERS, GOLDS, P, VERDICTS)
    assert found.questions == ["q2", "q1"]  # the right answer to q3 is not known
    assert found.rows_QM.tolist() == [[0, 2, 5], [1, 3, -1]]
    batch = found.candidates
    assert batch.answers_QM.tolist() == [[1, -1, 0], [0, 1, -1]]
    assert batch.gold_Q.tolist() == [0, 2]  # D, which nobody gave
    assert batch.present_QM.tolist() == [[True, True, True], [True, True, False]]
    assert batch.readable.tolist() == [[True, False, True], [True, True, False]]
    assert batch.right.tolist() == [[False, False, True], [False, False, False]]
    assert batch.counts.tolist() == [3, 2]
    np.testing.assert_array_equal(batch.p_QM, [[0.1, 0.3, 0.6], [0.2, np.nan, np.nan]])
    assert batch.verdicts_QM.tolist() == [[0, 1, 1], [0, -1, -1]]


def test_columns_go_there_and_back() -> None:
    found = gather(QUESTIONS, ANSWERS, GOLDS, P, VERDICTS)
    lengths = np.array([10.0, 20, 30, 40, 50, 60])
    np.testing.assert_array_equal(found.spread(lengths), [[10, 30, 60], [20, 40, np.nan]])
    np.testing.assert_array_equal(found.column(found.spread(lengths), 6), [10, 20, 30, 40, np.nan, 60])


def test_no_rows_are_no_questions() -> None:
    assert gather([], [], [], np.empty(0), np.empty(0, dtype=np.int64)).candidates.answers_QM.shape == (0, 0)


def test_two_right_answers_are_refused() -> None:
    with pytest.raises(ValueError, match="question 'q' has two right answers: 'A' and 'B'"):
        gather(["q", "q"], ["A", "A"], ["A", "B"], np.zeros(2), np.zeros(2, dtype=np.int64))


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        gather(QUESTIONS, ANSWERS, GOLDS, P[:5], VERDICTS)


GOOD = gather(QUESTIONS, ANSWERS, GOLDS, P, VERDICTS).candidates


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"present_QM": np.ones((2, 2), dtype=np.bool_)}, "one shape"),
        ({"gold_Q": np.array([0])}, "every question has a right answer"),
        ({"gold_Q": np.array([0, -1])}, "every question has a right answer"),
        ({"p_QM": np.full((2, 3), 1.1)}, "from 0 to 1"),
        ({"p_QM": np.full((2, 3), -0.1)}, "from 0 to 1"),
        ({"verdicts_QM": np.full((2, 3), 2)}, "a verdict is 0, 1 or -1"),
        ({"answers_QM": np.full((2, 3), -2)}, "an answer is -1 or more"),
    ],
)
def test_what_does_not_fit_is_refused(change: Mapping[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(GOOD, **change)


def test_one_axis_is_not_enough() -> None:
    with pytest.raises(ValueError, match="one shape"):
        Candidates(*(np.zeros(2, dtype=kind) for kind in (np.int64, np.bool_, np.float64, np.int64, np.int64)))
