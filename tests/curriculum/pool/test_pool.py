import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_fakes import example, examples

from curriculum.pool.errors import PoolError
from curriculum.pool.example import Example
from curriculum.pool.pool import Pool, StateError

SEEDS = st.integers(0, 2**32)


def ids(drawn: list[Example]) -> list[str]:
    return [one.case.id for one in drawn]


@given(examples(), SEEDS, st.lists(st.integers(0, 6), max_size=20))
def test_draws_are_balanced_and_never_repeat(given_examples: list[Example], seed: int, halves: list[int]) -> None:
    pool = Pool(given_examples, seed)
    drawn: list[Example] = []
    for half in halves:
        left = pool.left
        some = pool.draw(2 * half)
        assert len(some) == min(2 * half, left)
        assert 2 * sum(one.label for one in some) == len(some)
        drawn += some
    drawn += pool.draw(pool.left)
    assert len({*ids(drawn)}) == len(drawn)
    assert pool.draw(2) == []
    for source in ("a", "b"):
        labels = Counter(one.label for one in given_examples if one.source == source)
        got = Counter(one.label for one in drawn if one.source == source)
        assert got[0] == got[1] == min(labels[0], labels[1])


@given(examples(), SEEDS, st.randoms(use_true_random=False))
def test_the_order_is_one_of_content_and_seed(given_examples: list[Example], seed: int, random: object) -> None:
    shuffled = [*given_examples, *given_examples]  # copies are dropped
    random.shuffle(shuffled)
    one, other = Pool(given_examples, seed), Pool(shuffled, seed)
    assert one.state() == other.state()
    assert ids(one.draw(one.left)) == ids(other.draw(other.left))


@given(examples(), SEEDS, st.integers(0, 10), st.integers(0, 10))
def test_a_restart_in_the_middle_gives_the_same_rest(
    given_examples: list[Example], seed: int, before: int, after: int
) -> None:
    whole, stopped = Pool(given_examples, seed), Pool(given_examples, seed)
    whole.draw(2 * before)
    stopped.draw(2 * before)
    state = json.loads(json.dumps(stopped.state()))
    resumed = Pool(given_examples, seed)
    resumed.restore(state)
    assert ids(resumed.draw(2 * after)) == ids(whole.draw(2 * after))
    assert resumed.left == whole.left
    assert resumed.counts() == whole.counts()


def test_the_order_is_the_same_on_every_machine_and_in_every_release() -> None:
    pool = Pool([example(f"{number}", number % 2, f"{number // 4}") for number in range(12)], 7)
    assert ids(pool.draw(12)) == [f"s/{number}" for number in (5, 4, 1, 8, 11, 0, 7, 6, 3, 10, 9, 2)]
    assert pool.state()["digest"][:16] == "55fce0a06fd21126"


def test_another_seed_is_another_order() -> None:
    own = [example(f"{number}", number % 2, f"{number // 4}") for number in range(40)]
    orders = {tuple(ids(Pool(own, seed).draw(40))) for seed in range(20)}
    assert len(orders) == 20
    # Neither the place nor the neighbour tells the label: the first of a pair is right half the time.
    firsts = [Pool(own, seed).draw(40)[0].label for seed in range(200)]
    assert 70 < sum(firsts) < 130


@given(examples(("a",)), SEEDS)
def test_every_question_has_its_turn_before_any_has_its_second(given_examples: list[Example], seed: int) -> None:
    pool = Pool(given_examples, seed)
    drawn = pool.draw(pool.left)
    for label in (0, 1):
        there = Counter(one.question_id for one in given_examples if one.label == label)
        so_far = Counter[str]()
        for one in drawn:
            if one.label == label:
                so_far[one.question_id] += 1
                # Whoever has fewer turns by now has none left.
                assert all(so_far[q] >= so_far[one.question_id] - 1 or so_far[q] == there[q] for q in there)


def test_many_traces_of_one_question_are_spread() -> None:
    crowd = [example(f"c{number}", number % 2, "crowd") for number in range(100)]
    singles = [example(f"s{number}", number % 2, f"single{number}") for number in range(100)]
    drawn = Pool([*crowd, *singles], 0).draw(100)
    assert Counter(one.question_id for one in drawn)["crowd"] == 2


@given(examples(("a", "b", "c")), SEEDS, st.tuples(*[st.floats(0.1, 10)] * 3))
def test_every_start_has_the_sources_in_proportion(
    given_examples: list[Example], seed: int, weights: tuple[float, float, float]
) -> None:
    shares = dict(zip("abc", weights, strict=True))
    pool = Pool(given_examples, seed, weights=shares)
    have = {name: counts.drawable // 2 for name, counts in pool.counts().items() if counts.drawable}
    total = sum(shares[name] for name in have)
    taken = Counter[str]()
    while pool.left:
        one, other = pool.draw(2)
        assert one.source == other.source
        assert one.label != other.label
        taken[one.source] += 1
        if any(taken[name] == have[name] for name in have):
            break  # from here on others take its share
        for name in have:
            assert abs(taken[name] - taken.total() * shares[name] / total) <= 1.5


def test_a_source_that_is_spent_is_made_up_for_by_the_others() -> None:
    few = [example(f"{number}", number % 2, f"{number}", "few") for number in range(4)]
    many = [example(f"{number}", number % 2, f"{number}", "many") for number in range(40)]
    pool = Pool([*few, *many], 1, weights={"few": 1, "many": 1})
    assert Counter(one.source for one in pool.draw(8)) == {"few": 4, "many": 4}
    assert Counter(one.source for one in pool.draw(20)) == {"many": 20}
    assert pool.counts()["few"].drawn == pool.counts()["few"].drawable == 4
    assert pool.left == 16


def test_without_weights_all_sources_last_to_the_end() -> None:
    few = [example(f"{number}", number % 2, f"{number}", "few") for number in range(20)]
    many = [example(f"{number}", number % 2, f"{number}", "many") for number in range(80)]
    pool = Pool([*few, *many], 1)
    for _ in range(10):
        assert Counter(one.source for one in pool.draw(10)) == {"few": 2, "many": 8}


def test_a_short_label_is_told_and_nothing_is_drawn_out_of_balance() -> None:
    pool = Pool([example("r", 1), *(example(f"w{number}", 0, f"{number}") for number in range(9))], 0)
    assert pool.left == 2
    counts = pool.counts()["s"]
    assert (counts.right, counts.wrong, counts.questions, counts.drawable) == (1, 9, 10, 2)
    assert len(pool.draw(10)) == 2
    assert pool.left == 0


def test_a_label_is_never_told_by_its_source() -> None:
    # Drawn together these two would be balanced, and a judge would learn to tell them apart.
    pool = Pool([example("r", 1, source="a"), example("w", 0, source="b")], 0)
    assert pool.left == 0
    assert {name: counts.drawable for name, counts in pool.counts().items()} == {"a": 0, "b": 0}


def test_equal_texts_are_kept_once_and_contradictions_not_at_all() -> None:
    own = [
        example("1", 1, trace="Because  of\nthat."),
        example("2", 1, trace="Because of that."),
        example("3", 0, trace="Wrong, or is it?"),
        example("4", 1, trace="Wrong, or is it?"),
        example("5", 1, trace="Wrong, or is it?"),
        example("6", 0),
    ]
    pool = Pool(own, 0)
    counts = pool.counts()["s"]
    assert (counts.right, counts.wrong, counts.duplicates, counts.contradictory) == (1, 1, 1, 3)
    assert sorted(ids(pool.draw(2))) == ["s/1", "s/6"]


def test_which_of_equal_texts_is_kept_does_not_hang_on_their_order() -> None:
    own = [
        example(name, 1, question="q", trace="Because.", asked="Why?", source=source) for name, source in ("1a", "2b")
    ]
    own += [example(f"w{source}", 0, source=source) for source in "ab"]
    for order in (own, own[::-1]):
        pool = Pool(order, 0)
        assert sorted(ids(pool.draw(4))) == ["a/1", "a/wa"]
        assert {name: counts.duplicates for name, counts in pool.counts().items()} == {"a": 0, "b": 1}


def test_what_a_judge_would_see_differently_is_not_equal() -> None:
    options = {"A": "Insulin", "B": "Glucose"}
    shown = [
        example("1", 1, trace="t"),
        example("2", 1, trace="T"),  # mg and Mg, pH and PH
        example("3", 1, trace="t", options=options),
        example("4", 1, trace="t", options={"A": "Glucose", "B": "Insulin"}),
        example("5", 1, trace="t", options=dict(reversed(options.items()))),  # the same as 3
    ]
    assert Pool(shown, 0).counts()["s"].duplicates == 1


@given(examples(("a",)), SEEDS, st.integers(1, 6))
def test_no_question_has_more_than_its_cap(given_examples: list[Example], seed: int, most: int) -> None:
    pool = Pool(given_examples, seed, per_question=most)
    drawn = pool.draw(pool.left)
    assert all(number <= most for number in Counter(one.question_id for one in drawn).values())
    have = Counter(one.question_id for one in given_examples)
    if have:
        counts = pool.counts()["a"]
        assert counts.right + counts.wrong == sum(min(most, number) for number in have.values())
        assert counts.over_cap == len(given_examples) - counts.right - counts.wrong


def test_a_cap_keeps_both_labels_of_a_question() -> None:
    own = [*(example(f"w{number}", 0) for number in range(9)), example("r", 1)]
    assert Pool(own, 0, per_question=2).left == 2
    counts = Pool(own, 0, per_question=4).counts()["s"]
    assert (counts.right, counts.wrong) == (1, 3)


@pytest.mark.parametrize("count", [-2, 1, 7])
def test_an_odd_draw_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="even number"):
        Pool([], 0).draw(count)


def test_states_of_other_pools_are_refused_with_what_to_do() -> None:
    own = [example(f"{number}", number % 2, f"{number // 4}") for number in range(12)]
    pool = Pool(own, 1)
    pool.draw(4)
    state = dict(pool.state())
    with pytest.raises(StateError, match=r"set pool\.seed back to 1 to go on"):
        Pool(own, 2).restore(state)
    others = {
        "fewer": Pool(own[:-1], 1),
        "capped": Pool(own, 1, per_question=2),
        "weighted": Pool(own, 1, weights={"s": 3}),
        "relabelled": Pool([*own[:-1], example("11", 0, "2")], 1),
        "renamed": Pool([*own[:-1], example("99", 1, "2", trace="Reasoning 11.")], 1),
    }
    for name, other in others.items():
        with pytest.raises(StateError, match="other examples"):
            other.restore(state)
        assert other.state()["drawn"] == 0, name
    for broken in ({}, {**state, "drawn": 3}, {**state, "drawn": "4"}, {**state, "extra": 1}, {**state, "version": 2}):
        with pytest.raises(StateError, match="not the state of a pool"):
            pool.restore(broken)
    with pytest.raises(StateError, match="other examples"):
        pool.restore({**state, "drawn": 400})
    assert pool.state() == state


def test_what_cannot_be_mixed_is_refused() -> None:
    own = [example("1", 1, source="a"), example("2", 0, source="b")]
    with pytest.raises(PoolError, match="source 'b' has no weight"):
        Pool(own, 0, weights={"a": 1})
    for weight in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(PoolError, match="expected a number above 0"):
            Pool(own, 0, weights={"a": 1, "b": weight})
    with pytest.raises(PoolError, match="expected 1 or more"):
        Pool(own, 0, per_question=0)
    with pytest.raises(PoolError, match="two examples have the id 's/1'"):
        Pool([example("1", 1), example("1", 1, trace="Another.")], 0)


def test_successive_draws_do_not_dwell_on_a_question() -> None:
    own = [example(f"{number}", number % 2, f"{number // 8}") for number in range(800)]
    drawn = Pool(own, 3).draw(800)
    assert sum(one.question_id == other.question_id for one, other in pairwise(drawn)) < 24  # of a hundred questions
