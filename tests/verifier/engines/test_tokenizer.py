"""A Hugging Face tokenizer as the judge sees it: text is text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import SPECIAL, save_tokenizer

from verifier.engines.tokenizer import HFTokenizer


@pytest.fixture(scope="session")
def tokenizer(tiny: Path) -> HFTokenizer:
    return HFTokenizer(tiny)


@pytest.mark.parametrize("special", SPECIAL)
def test_the_spelling_of_a_special_token_stays_text(tokenizer: HFTokenizer, special: str) -> None:
    for text in (special, f"a{special}b", f"{special} {special}"):
        ids = tokenizer.encode(text)
        assert not {0, 1, 2} & set(ids)
        assert tokenizer.decode(ids) == text


def test_nothing_is_added_and_nothing_lost(tokenizer: HFTokenizer) -> None:
    assert tokenizer.encode("") == []
    text = "  K+ <3.5 ,  don 't\n\n</answer> é 日本 "
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.text())
def test_any_text_survives(tokenizer: HFTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_left_out_of_text(tokenizer: HFTokenizer) -> None:
    ids = tokenizer.encode("yes")
    assert tokenizer.decode([1, *ids, 2, 0]) == "yes"
    assert tokenizer.end_ids == {0, 2}


def test_the_chat_frame(tokenizer: HFTokenizer) -> None:
    before, after = tokenizer.chat_frame()
    assert before[0] == 1
    assert after[0] == 2
    assert 1 in after
    assert tokenizer.decode(before) == "user\n"
    assert tokenizer.decode(after) == "\nassistant\n"


def test_a_base_model_has_no_frame_but_its_start(tmp_path: Path) -> None:
    assert HFTokenizer(save_tokenizer(tmp_path, chat_template=None)).chat_frame() == ([1], [])
