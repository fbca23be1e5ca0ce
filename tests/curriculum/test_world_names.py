from pathlib import Path
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import small_world

from curriculum.closed_world.names import SLOTS, Kind, Namer, NamesSpentError, belongs, real_words, words
from curriculum.closed_world.world import Recipe, World, make_world
from curriculum.faults import Side
from retrieval.sources import jsonl


def names(world: World) -> set[str]:
    return {name for kind in Kind for name in world.names[kind]}


@given(st.text(max_size=30), st.integers(0, 100), st.integers(0, 100))
def test_a_name_belongs_to_one_side_and_one_seed_in_sixteen(name: str, first: int, second: int) -> None:
    owners = [(side, seed) for side in Side for seed in range(SLOTS) if belongs(name, side, seed)]
    assert len(owners) == 1
    for side in Side:
        both = belongs(name, side, first) and belongs(name, side, second)
        assert not both or first % SLOTS == second % SLOTS


def test_worlds_have_no_name_in_common() -> None:
    worlds = [names(small_world(side, seed)) for side in Side for seed in (0, 1, 2)]
    assert sum(map(len, worlds)) == len(set().union(*worlds))


def test_no_name_is_a_word_of_the_starter_corpus() -> None:
    assert "warfarin" in real_words()
    for side in Side:
        assert not names(small_world(side)) & real_words()


def test_a_word_that_is_taken_is_never_given_out() -> None:
    first = Namer(Side.TRAIN, 0, ())
    free = [first.name(Kind.DRUG) for _ in range(20)]
    second = Namer(Side.TRAIN, 0, free[:10])
    assert not set(free[:10]) & {second.name(Kind.DRUG) for _ in range(20)}
    assert len(set(free)) == 20


def test_no_name_is_a_word_of_larger_corpora(repository: Path) -> None:
    folder = repository.parent / "shared" / "data" / "corpora"
    if not folder.is_dir():
        pytest.skip("the corpora in ../shared/data are not on this machine")
    real = frozenset[str]().union(*(words(passage.text) for file in folder.iterdir() for passage in jsonl(file)))
    assert len(real) > 40_000
    for side in Side:
        for seed in range(8):
            assert not names(make_world(side, Recipe(seed=seed))) & real


def test_look_alikes_differ_in_a_letter_or_two() -> None:
    world = small_world()
    for drug in world.drugs:
        alike = world.look_alike(drug)
        assert world.look_alike(alike) == drug
        assert len(alike) == len(drug)
        assert 1 <= sum(one != other for one, other in zip(drug, alike, strict=True)) <= 2


def test_a_namer_says_that_it_has_no_more() -> None:
    with pytest.raises(NamesSpentError, match="looks like zz"):
        Namer(Side.TRAIN, 0, {first + second for first in ascii_lowercase for second in ascii_lowercase}).look_alike(
            "zz"
        )


def test_words_are_runs_of_letters_in_lower_case() -> None:
    assert words("Beta-blockers, e.g. Propranolol 40mg") == {"beta", "blockers", "e", "g", "propranolol", "mg"}
