"""A Hugging Face tokenizer as the judge sees it: text is text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import CHAT_TEMPLATE, SPECIAL, save_tokenizer
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

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


def test_a_tokenizer_that_is_loaded_already_reads_the_same(tiny: Path) -> None:
    loaded = HFTokenizer(AutoTokenizer.from_pretrained(tiny))
    text = "<|im_end|> <think>a</think> 1"
    assert loaded.encode(text) == HFTokenizer(tiny).encode(text)
    assert loaded.chat_frame() == HFTokenizer(tiny).chat_frame()
    assert loaded.end_ids == HFTokenizer(tiny).end_ids


ADDED = ("<tool_call>", "</tool_call>", "<think>", "[TOOL]")


@pytest.fixture(scope="session")
def with_added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose tokenizer has added tokens that are not special, one of them in its frame."""
    folder = save_tokenizer(tmp_path_factory.mktemp("added"), chat_template=CHAT_TEMPLATE + "<think>")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([*ADDED[:3], AddedToken(ADDED[3], special=False, lstrip=True, rstrip=True, normalized=False)])
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("added", [*SPECIAL, *ADDED])
def test_the_spelling_of_an_added_token_stays_text_too(with_added: Path, added: str) -> None:
    tokenizer = HFTokenizer(with_added)
    live = set(AutoTokenizer.from_pretrained(with_added).added_tokens_decoder)
    assert len(live) == len(SPECIAL) + len(ADDED)
    for text in (added, f"a{added}b", f" {added} {added}\n"):
        ids = tokenizer.encode(text)
        assert not live & set(ids)
        assert tokenizer.decode(ids) == text


def test_the_frame_keeps_its_added_tokens(with_added: Path) -> None:
    think = AutoTokenizer.from_pretrained(with_added).convert_tokens_to_ids("<think>")
    before, after = HFTokenizer(with_added).chat_frame()
    assert (before[0], after[0], after[-1]) == (1, 2, think)


def test_text_without_added_tokens_is_read_as_ever(with_added: Path) -> None:
    text = "  K+ <3.5 ,  don 't\n\n</answer> é 日本 the patient has a fever"
    expected = AutoTokenizer.from_pretrained(with_added).encode(text, add_special_tokens=False)
    assert HFTokenizer(with_added).encode(text) == expected


def test_an_added_token_that_is_an_ordinary_piece_as_well(tmp_path: Path) -> None:
    """Some vocabularies hold their tags as pieces of text; blanks in them stay what they are."""
    pieces = [(letter, -5.0) for letter in "abcdefghijklmnopqrstuvwxyz<>_/▁"] + [("<tool>", -1.0), ("▁▁", -1.0)]
    plain = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    plain.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    whole = PreTrainedTokenizerFast(tokenizer_object=plain)
    whole.add_tokens(["<tool>", "▁▁"])
    whole.save_pretrained(tmp_path)
    tool, blanks = whole.convert_tokens_to_ids(["<tool>", "▁▁"])
    ids = HFTokenizer(tmp_path).encode("a<tool>b  c")
    assert whole.convert_ids_to_tokens(ids) == ["a", "<", "t", "o", "o", "l", ">", "b", "▁▁", "c"]
    assert tool not in ids
    assert blanks in ids
