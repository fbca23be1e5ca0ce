from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from retrieval.clean import REASONS, Cleaner, CleaningOptions
from retrieval.passage import BuildError, Passage
from retrieval.sources import starter

LONG = "Metformin lowers hepatic glucose production and is the first medicine given in type 2 diabetes, unless the kidneys fail."
EVERYTHING = CleaningOptions(min_characters=0, english_only=False, drop_flags=())


def made(text: str, identifier: str = "1", **fields: Any) -> Passage:
    return Passage(id=identifier, text=text, **fields)


@pytest.mark.parametrize(
    ("passage", "reason"),
    [
        (made(" \u200b\n"), "empty"),
        (made(LONG, flags=("retracted",)), "retracted"),
        (made(LONG, flags=("expression_of_concern", "withdrawn")), "withdrawn"),
        (made(LONG, language="chi"), "not_english"),
        (made("Le patient est dans la salle. " * 9), "not_english"),
        (made(LONG[:119]), "too_short"),
        (made(LONG[:110] + " " * 20), "too_short"),  # what is cut away does not count
    ],
)
def test_a_passage_is_left_out_for_one_reason(passage: Passage, reason: str) -> None:
    cleaner = Cleaner()
    assert list(cleaner.kept([passage])) == []
    assert cleaner.counts == dict.fromkeys(REASONS, 0) | {reason: 1}


def test_what_stays() -> None:
    found = [
        made(LONG),
        made(LONG[:-1] + "!" + " ", "2", title=" RETRACTED:\n a title is no evidence "),
        made("kept as it was declared: " + LONG, "3", flags=("expression_of_concern", "retraction_notice")),
    ]
    cleaner = Cleaner()
    kept = list(cleaner.kept(found))
    assert [passage.id for passage in kept] == ["1", "2", "3"]
    assert kept[0] is found[0]
    assert (kept[1].title, kept[1].text) == ("RETRACTED: a title is no evidence", LONG[:-1] + "!")
    assert not any(cleaner.counts.values())


def test_of_equal_texts_the_first_stays() -> None:
    cleaner = Cleaner(EVERYTHING)
    found = [
        made("cafe\u0301 au lait", "a", title="first"),
        made("café  au\nlait", "b"),
        made("café au lait", "a", corpus="other"),
        made("Café au lait", "c"),
    ]
    kept = list(cleaner.kept(found))
    assert [passage.id for passage in kept] == ["a", "c"]
    assert kept[0].text == "café au lait"
    assert cleaner.counts["duplicate"] == 2


def test_a_passage_that_is_left_out_does_not_take_others_with_it() -> None:
    cleaner = Cleaner()
    assert [p.id for p in cleaner.kept([made(LONG, "a", language="fre"), made(LONG, "b")])] == ["b"]


def test_ids_are_unique_within_a_corpus_even_among_what_is_left_out() -> None:
    with pytest.raises(BuildError, match="corpus 'c' has two passages with the id '1'"):
        list(Cleaner().kept([made(" ", corpus="c"), made(LONG, corpus="c")]))
    assert len(list(Cleaner().kept([made(LONG, corpus="c"), made(LONG + "!", corpus="d")]))) == 2


@given(st.lists(st.sampled_from(["a", "b", " b ", "c", "c\n", "é", "e\u0301", " ", "\u200b"])))
def test_counts_add_up_and_order_is_kept(texts: list[str]) -> None:
    found = [made(text, str(number)) for number, text in enumerate(texts)]
    cleaner = Cleaner(EVERYTHING)
    kept = list(cleaner.kept(found))
    assert len(kept) + sum(cleaner.counts.values()) == len(found)
    assert [int(passage.id) for passage in kept] == sorted(int(passage.id) for passage in kept)
    assert max(Counter(passage.text for passage in kept).values(), default=1) == 1
    again = Cleaner(EVERYTHING)
    assert list(again.kept(kept)) == kept
    assert not any(again.counts.values())


def test_the_starter_corpus_stays_whole_and_unchanged() -> None:
    found = list(starter())
    cleaner = Cleaner()
    assert all(a is b for a, b in zip(cleaner.kept(found), found, strict=True))
    assert not any(cleaner.counts.values())


def test_near_duplicates() -> None:
    pytest.importorskip("rensa")
    words = [f"word{number}" for number in range(300)]
    slightly = [*words[:299], "other"]
    largely = [word if number % 4 else "changed" for number, word in enumerate(words)]
    found = [made(" ".join(text), str(number)) for number, text in enumerate([words, slightly, largely, words[:150]])]
    options = CleaningOptions(near_duplicates=True)
    cleaner = Cleaner(options)
    assert [passage.id for passage in cleaner.kept(found)] == ["0", "2", "3"]
    assert cleaner.counts["near_duplicate"] == 1
    assert [passage.id for passage in Cleaner().kept(found)] == ["0", "1", "2", "3"]


def test_options_are_checked() -> None:
    for wrong in ({"min_characters": -1}, {"drop_flags": ("Retracted",)}, {"min_words": 3}):
        with pytest.raises(ValidationError):
            CleaningOptions.model_validate(wrong)
    assert CleaningOptions.model_validate_json(CleaningOptions().model_dump_json()) == CleaningOptions()
