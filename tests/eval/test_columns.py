import numpy as np
import pytest
from pack_fakes import judgment, labelled, pack

from eval.columns import join, whole_questions

CASES = pack([["A", "B", None], ["C", "A"]], generators=("x", "y"))


def test_one_row_a_trace_in_the_order_of_the_pack() -> None:
    judged = [judgment(CASES[3], 0.9), judgment(CASES[0], 0.2), judgment(CASES[4], None)]
    columns = join(CASES, judged)
    assert columns.traces == ["q0#0", "q0#1", "q0#2", "q1#0", "q1#1"]
    assert columns.questions == ["q0", "q0", "q0", "q1", "q1"]
    assert columns.generators == ["x", "y", "x", "x", "y"]
    assert columns.answers == ["A", "B", None, "C", "A"]
    assert columns.golds == ["A"] * 5
    assert columns.labels.tolist() == [1, 0, -1, 0, 1]
    assert columns.verdicts.tolist() == [0, -1, -1, 1, -1]
    assert np.array_equal(columns.p, [0.2, np.nan, np.nan, 0.9, np.nan], equal_nan=True)
    assert columns.come_to.tolist() == [True, False, False, True, True]  # a failure is something that was come to


def test_a_failure_is_no_number() -> None:
    columns = join(CASES, [judgment(one, None) for one in CASES])
    assert np.isnan(columns.p).all()
    assert (columns.verdicts == -1).all()


def test_some_of_the_rows() -> None:
    columns = join(CASES, [judgment(CASES[3], 0.9)]).take(np.asarray([3, 0]))
    assert columns.traces == ["q1#0", "q0#0"]
    assert columns.labels.tolist() == [0, 1]
    assert columns.verdicts.tolist() == [1, -1]
    assert columns.come_to.tolist() == [True, False]
    assert len(columns) == 2


def test_a_question_is_whole_when_all_its_traces_were_come_to() -> None:
    columns = join(CASES, [judgment(CASES[1], 0.9), judgment(CASES[4], None), judgment(CASES[3], 0.2)])
    assert whole_questions(columns.questions, columns.come_to).tolist() == [3, 4]
    assert whole_questions([], np.empty(0, dtype=np.bool_)).tolist() == []


def test_judgments_of_something_else_are_refused() -> None:
    with pytest.raises(ValueError, match="'q9#0' is not in the pack"):
        join(CASES, [judgment(labelled(9, 0), 0.5)])
    with pytest.raises(ValueError, match="'q0#0' is not in the pack, or judged twice"):
        join(CASES, [judgment(CASES[0], 0.5), judgment(CASES[0], 0.5)])
    with pytest.raises(ValueError, match="'q0#0' was judged when its question or trace was another"):
        join(CASES, [judgment(labelled(0, 0, text="Another text."), 0.5)])
    with pytest.raises(ValueError, match="same id"):
        join([CASES[0], CASES[0]])
