import math

import numpy as np
import pytest

from eval.abstention import measure_abstention

RANDOM = np.random.default_rng(0)
P = RANDOM.random(2000)
HONEST = (RANDOM.random(2000) < P).astype(np.int64)
QUESTIONS = [f"q{row // 4}" for row in range(2000)]


def test_an_honest_judge_reaches_what_is_wished_on_questions_it_was_not_tuned_on() -> None:
    found = measure_abstention(HONEST, P, QUESTIONS, 0.9)
    # Where p is uniform and honest, answering from confidence t on has the accuracy (1 + t) / 2 and the coverage 2 (1 - t).
    assert found.threshold == pytest.approx(0.8, abs=0.04)
    assert found.coverage.value == pytest.approx(0.4, abs=0.08)
    assert found.accuracy.low < 0.9 < found.accuracy.high
    assert found.wished == 0.9


def test_a_judge_that_knows_nothing_does_not_reach_it_however_its_luck_looks() -> None:
    labels = np.random.default_rng(1).integers(0, 2, 2000)
    found = measure_abstention(labels, P, QUESTIONS, 0.8)
    assert found.accuracy.value < 0.8 or math.isnan(found.accuracy.value)


def test_what_is_out_of_reach_is_never_answered() -> None:
    found = measure_abstention(1 - (P > 0.5).astype(np.int64), P, QUESTIONS, 0.5)
    assert found.threshold is None
    assert found.coverage.value == 0
    assert math.isnan(found.accuracy.value)
