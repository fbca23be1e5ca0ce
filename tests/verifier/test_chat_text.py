# ruff: noqa: RUF001 - full-width bars are what DeepSeek writes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.chat_text import answer_text, question_of, response_in, text_of, trimmed

ASKED = "What does warfarin inhibit?"
TEMPLATES = [
    f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{ASKED}<|im_end|>\n<|im_start|>assistant\n",
    f"<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{ASKED}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    f"<bos><start_of_turn>user\n{ASKED}<end_of_turn>\n<start_of_turn>model\n",
    f"<|start|>system<|message|>x<|end|><|start|>user<|message|>{ASKED}<|end|><|start|>assistant",
    f"<|user|>\n{ASKED}<|end|>\n<|assistant|>\n",
    f"<|user|>\n{ASKED}</s>\n<|assistant|>\n",
    f"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n{ASKED} [/INST]",
    f"<｜begin▁of▁sentence｜>Be brief.<｜User｜>{ASKED}<｜Assistant｜>",
]


@pytest.mark.parametrize("prompt", [*TEMPLATES, ASKED, f"  {ASKED}\n", f"<s>{ASKED}</s>"])
def test_the_question_is_the_users_last_message(prompt: str) -> None:
    assert question_of(prompt) == ASKED
    earlier = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n"
    if prompt.startswith("<|im_start|>"):
        assert question_of(earlier + prompt) == ASKED


@pytest.mark.parametrize(
    ("messages", "question"),
    [
        ([{"role": "user", "content": ASKED}], ASKED),
        ([{"role": "user", "content": "Hi"}, {"role": "assistant"}, {"role": "user", "content": ASKED}], ASKED),
        ([{"role": "user", "content": [{"type": "input_text", "text": ASKED}, {"type": "image"}]}], ASKED),
        ([{"role": "system", "content": "x"}], ""),
        ([{"role": "user", "content": 5}, 7], ""),
        ([], ""),
        ({"role": "user"}, ""),
        (None, ""),
        (5, ""),
    ],
)
def test_messages(messages: Any, question: str) -> None:
    assert question_of(messages) == question


@pytest.mark.parametrize("prompt", [*TEMPLATES, f"{ASKED}\n"])
@pytest.mark.parametrize("end", ["", "<|im_end|>", "</s>\n", "<|eot_id|><|endoftext|><|endoftext|>"])
def test_the_response_is_what_follows_the_prompt(prompt: str, end: str) -> None:
    assert response_in(f"{prompt}It blocks VKOR.{end}", prompt) == "It blocks VKOR."
    assert response_in(f"<|endoftext|><|endoftext|>{prompt}It blocks VKOR.{end}", prompt) == "It blocks VKOR."
    assert response_in(f"{prompt}{end}", prompt) == ""


def test_a_text_that_was_decoded_without_marks_is_read_as_well() -> None:
    prompt = f"<|im_start|>user\n{ASKED}<|im_end|>\n<|im_start|>assistant\n"
    assert response_in(f"user\n{ASKED}\nassistant\nIt blocks VKOR.", prompt) == "It blocks VKOR."


@pytest.mark.parametrize(("query", "prompt"), [("It blocks VKOR.", ASKED), (f"So: {ASKED} VKOR", ASKED), ("x", "")])
def test_a_prompt_that_is_not_there_is_not_guessed(query: str, prompt: str) -> None:
    assert response_in(query, prompt) is None


def test_a_response_that_repeats_the_prompt_is_kept_whole() -> None:
    assert response_in(f"{ASKED} You asked: {ASKED} VKOR", ASKED) == f"You asked: {ASKED} VKOR"


def test_what_an_assistant_said() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It blocks VKOR."}]}
    output = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        said,
        {"type": "function_call", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "output": "a passage"},
        {"role": "user", "content": "go on"},
        {**said, "content": "The answer is A."},
        5,
    ]
    assert answer_text(output) == "It blocks VKOR.\n\nThe answer is A."
    assert answer_text(None) == answer_text("text") == answer_text([]) == answer_text({"a": 1}) == ""


@given(st.lists(st.sampled_from(["<", "|", "s", ">", "/", " ", "\n", "a", "<|im_end|>", "</s>"])).map("".join))
def test_trimming_leaves_nothing_to_trim(text: str) -> None:
    assert trimmed(trimmed(text)) == trimmed(text)
    assert trimmed(text) in text
    assert trimmed(f"<|im_end|> {text} </s>") == trimmed(text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_anything_can_be_read(value: Any) -> None:
    for text in (text_of(value), question_of(value), answer_text(value)):
        assert isinstance(text, str)


def test_long_texts_are_read_in_one_pass() -> None:
    """A pattern that goes back over what it read would take minutes."""
    assert trimmed(" " * 2_000_000 + "x" + "</s>" * 300_000) == "x"
    assert trimmed("x" + " " * 2_000_000) == "x"
    assert trimmed("x" + "</s> " * 300_000) == "x"
    assert trimmed("x" + " " * 2_000_000 + "y").startswith("x ")
    assert question_of("<|im_start|>user\n" * 200_000) == ""
    assert question_of("[INST]" * 500_000 + "q[/INST]") == "q"
    assert response_in("<|a|>" * 400_000 + "q" + "<" * 500_000, "q") == "<" * 500_000
