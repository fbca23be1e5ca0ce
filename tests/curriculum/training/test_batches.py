"""What a step takes: everything comes equally often, in balance."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tiny_lessons import example

from curriculum.batches import balanced_batch, batch_of, steps_of


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 20), st.integers(0, 5))
def test_each_comes_once_before_any_comes_again(count: int, size: int, steps: int, seed: int) -> None:
    taken = Counter(index for step in range(steps) for index in batch_of(count, size, step, seed))
    often = [taken[index] for index in range(count)]
    assert max(often) - min(often) <= 1
    assert sum(often) == steps * size
    assert all(len(batch_of(count, size, step, seed)) == size for step in range(steps))


def test_every_round_and_seed_has_an_order_of_its_own() -> None:
    first, second = batch_of(20, 20, 0, 0), batch_of(20, 20, 1, 0)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second != batch_of(20, 20, 1, 1)
    assert batch_of(20, 20, 0, 0) == first


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 10), st.integers(0, 9))
def test_half_of_a_batch_is_right_however_rare_that_is(right: int, wrong: int, size: int, step: int) -> None:
    examples = [example(number, 1) for number in range(right)] + [example(number, 0) for number in range(wrong)]
    batch = balanced_batch(examples, size, step, 0)
    assert len(batch) == size
    labels = [one.label for one in batch]
    assert abs(2 * sum(labels) - size) <= 1
    assert all(first != second for first, second in pairwise(labels))


def test_of_one_label_alone_there_is_nothing_to_balance() -> None:
    assert {one.label for one in balanced_batch([example(number, 1) for number in range(3)], 4, 0, 0)} == {1}


def test_an_iteration_takes_each_example_as_often_as_it_has_epochs() -> None:
    assert steps_of(20_000, 256, 5, None) == 390
    assert steps_of(20_000, 256, 5, 100) == 100
    assert steps_of(3, 256, 1, None) == 1
    assert steps_of(0, 256, 5, None) == 0
