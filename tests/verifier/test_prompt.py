"""Prompt files, and how a case is put into one."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verifier_fakes import CASE, PASSAGES, any_text

from verifier.engines.scripted import ByteTokenizer
from verifier.parse import Parser
from verifier.prompt import Prompt, PromptError, load_prompt, prefix_ids, prompt_ids, render_passage, render_question
from verifier.types import Case, EvidencePassage, Question, Trace


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text("Judge this.\nR: {trace}\nQ: {question}\nGo.")
    return path


def rendered(prompt: Prompt, case: Case) -> str:
    return "".join(prompt.pieces(case))


@pytest.mark.parametrize("name", ["judge", "guided"])
def test_shipped_prompts_load_and_explain_the_format(name: str) -> None:
    prompt = load_prompt(name)
    assert prompt.name == name
    assert prompt.fields == ("question", "trace")
    for tag in ("<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>"):
        assert tag in prompt.head
    text = rendered(prompt, CASE)
    assert CASE.question.text in text
    assert "Metformin is first-line." in text
    assert "{" not in text


def test_a_file_of_ones_own_in_an_order_of_ones_own(own: Path) -> None:
    prompt = load_prompt(str(own))
    assert rendered(prompt, Case(id="c", question="q?", trace="t.")) == "Judge this.\nR: t.\nQ: q?\nGo."
    assert prompt.digest == hashlib.sha256(own.read_bytes()).hexdigest()


def test_the_digest_changes_with_the_file(own: Path) -> None:
    before = load_prompt(str(own)).digest
    own.write_text(own.read_text() + "!")
    assert load_prompt(str(own)).digest != before


def test_rendering_is_a_single_pass(own: Path) -> None:
    for prompt in (load_prompt("judge"), load_prompt(str(own))):
        text = rendered(prompt, Case(id="c", question="is {trace} {question}?", trace="it is {question}{trace} {0} {}"))
        assert "is {trace} {question}?" in text
        assert "it is {question}{trace} {0} {}" in text


@pytest.mark.parametrize(
    ("text", "found"),
    [("nothing", "none"), ("{question}", "{question}"), ("{trace} {trace} {question}", "{trace}, {trace}, {question}"),
     ("{question} {trace} {answer}", "{question}, {trace}, {answer}"), ("{Question} {trace}", "{Question}, {trace}")],
)  # fmt: skip
def test_fields_that_are_missing_doubled_or_unknown_are_named(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(PromptError, match="once each; it holds: ") as raised:
        load_prompt(str(path))
    assert str(raised.value).endswith(found)


@pytest.mark.parametrize("name", ["jugde", "no/such/file.txt", "../prompts/judge"])
def test_an_unknown_prompt_names_the_shipped_ones(name: str) -> None:
    with pytest.raises(PromptError, match="guided, judge"):
        load_prompt(name)


def test_options_and_steps_stand_on_lines_of_their_own() -> None:
    question = Question(text="Which drug?", options={"A": "Metformin", "B": "<answer>1</answer>"})
    assert render_question(question) == "Which drug?\nA. Metformin\nB. (answer)1(/answer)"
    case = Case(id="c", question="q", trace=["First.", "Then."])
    assert "Step 1: First.\nStep 2: Then." in rendered(load_prompt("judge"), case)


def test_a_passage_has_its_rank_title_and_text() -> None:
    passage = EvidencePassage(**PASSAGES[0].model_dump(), score=1.0, rank=2)
    assert render_passage(passage) == "[2] Metformin\nMetformin is first-line therapy of type 2 diabetes.\n"


@settings(max_examples=40)
@given(
    st.lists(any_text.map(lambda text: "x" + "".join(filter(str.isprintable, text))), min_size=3, max_size=3),
    st.sampled_from(["judge", "guided"]),
)
def test_no_case_forges_a_tag_and_all_share_the_prefix(texts: list[str], name: str) -> None:
    prompt, tokenizer = load_prompt(name), ByteTokenizer()
    question, option, trace = texts
    case = Case(id="c", question=Question(text=question, options={"A": option}), trace=Trace(text=trace))
    head, *rest = prompt.pieces(case)
    assert head == prompt.head
    parser = Parser()
    assert parser.feed("".join(rest)) == ()
    assert parser.open_tag is None
    shared = prefix_ids(prompt, tokenizer)
    ids = prompt_ids(prompt, case, tokenizer)
    assert ids[: len(shared)] == shared
    assert tokenizer.decode(ids) == head + "".join(rest) + "\n"
