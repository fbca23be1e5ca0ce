import numpy as np
import pytest
from pack_fakes import pack

from eval.baselines import BASELINES, answer_frequency, length, random, self_consistency, verdicts
from eval.columns import Columns, join

COLUMNS = join(pack([["A", "A", "B", None], ["C", "A"], [None]]))
TEXTS = ["one", "three", "eleven", "x", "one", "seventeen", ""]


def test_self_consistency_is_the_share_of_like_answers() -> None:
    assert self_consistency(COLUMNS, TEXTS).tolist() == pytest.approx([2 / 3, 2 / 3, 1 / 3, 0, 1 / 2, 1 / 2, 0])


def test_answer_frequency_is_the_share_of_the_letter_in_the_pack() -> None:
    assert answer_frequency(COLUMNS, TEXTS).tolist() == pytest.approx([0.6, 0.6, 0.2, 0, 0.2, 0.6, 0])


def test_shorter_traces_are_trusted_more_and_equal_ones_alike() -> None:
    p = length(COLUMNS, TEXTS)
    assert p.tolist() == pytest.approx(
        [1 - 3 / 7, 1 - 4.5 / 7, 1 - 5.5 / 7, 1 - 1.5 / 7, 1 - 3 / 7, 1 - 6.5 / 7, 1 - 0.5 / 7]
    )


def test_random_follows_from_the_trace_alone() -> None:
    p = random(COLUMNS, TEXTS)
    assert np.array_equal(random(COLUMNS.take(np.asarray([4, 0])), []), p[[4, 0]])
    many = random(join(pack([["A"]] * 500)), [])
    assert abs(many.mean() - 0.5) < 0.05
    assert many.min() >= 0
    assert many.max() < 1


@pytest.mark.parametrize("name", BASELINES)
def test_no_baseline_sees_the_gold_answer(name: str) -> None:
    blind = Columns(
        **{
            field: getattr(COLUMNS, field)
            for field in ("questions", "traces", "generators", "answers", "p", "verdicts", "come_to")
        },
        golds=["D"] * len(COLUMNS),
        labels=1 - COLUMNS.labels,
    )
    assert np.array_equal(BASELINES[name](blind, TEXTS), BASELINES[name](COLUMNS, TEXTS))


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_gives_numbers_from_0_to_1_whatever_the_pack(name: str) -> None:
    for columns in (COLUMNS, join(pack([[None], [None]])), join([])):
        p = BASELINES[name](columns, TEXTS[: len(columns)])
        assert p.shape == (len(columns),)
        assert ((p >= 0) & (p <= 1)).all()


def test_a_half_is_not_enough_for_a_verdict() -> None:
    assert verdicts(np.asarray([0.4, 0.5, 0.6])).tolist() == [0, 0, 1]
