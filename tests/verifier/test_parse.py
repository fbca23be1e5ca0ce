# ruff: noqa: RUF001 - characters that look like others are the subject here
"""The parser: labels, blocks, defects, and that no text and no split of it can confuse it."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_fakes import any_text

from verifier.parse import MAX_ANSWERS, Block, Defect, Parser, Tag, parse
from verifier.reward import format_score

GOOD = "<think>Metformin is first-line.</think>\n<search>metformin</search>\n<think>So it is.</think><answer>1</answer>"


# ---- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("content", "label"), [("1", 1), ("0", 0), (" 1 ", 1), ("\n0\n", 0), ("\t1", 1)])
def test_a_label_is_0_or_1_after_trimming(content: str, label: int) -> None:
    assert parse(f"<think>t</think><answer>{content}</answer>").label == label


@pytest.mark.parametrize(
    "content",
    ["-1", "+1", "7", "01", "10", "00", "one", "１", "0\u0661", "¹", "①", "1.0", "1.", "0 1", "1 0", "1\u200b", "", " ",
     "True", "(1)", "**1**", "1<b>", "<think>1</think>"],
)  # fmt: skip
def test_nothing_else_is_a_label(content: str) -> None:
    read = parse(f"<think>t</think><answer>{content}</answer>")
    assert read.label is None
    assert Defect.BAD_LABEL in read.defects


def test_only_an_answer_has_a_label() -> None:
    assert [Block(tag, "1").label for tag in (Tag.THINK, Tag.SEARCH, Tag.INFORMATION)] == [None, None, None]


def test_the_last_complete_answer_counts() -> None:
    assert parse("<think>t</think><answer>0</answer><think>no</think><answer>1</answer>").label == 1
    assert parse("<think>t</think><answer>0</answer><answer>1").label == 0
    assert parse("<think>t</think><answer>1</answer><answer>?</answer>").label is None


@pytest.mark.parametrize("tag", [Tag.THINK, Tag.SEARCH, Tag.INFORMATION])
def test_a_verdict_inside_another_block_is_talk(tag: Tag) -> None:
    assert parse(f"{tag.opening}<answer>1</answer>{tag.closing}").label is None
    assert parse(f"{tag.opening}<answer>1</answer>").label is None
    assert parse(f"{tag.opening}<answer>1</answer>{tag.closing}<answer>0</answer>").label == 0


@pytest.mark.parametrize(
    "look_alike",
    [
        "<ANSWER>1</ANSWER>",
        "<Answer>1</Answer>",
        "< answer>1</ answer>",
        "<answer >1</answer >",
        "<an swer>1</an swer>",
        "<ans\nwer>1</ans\nwer>",
        "<an\u200bswer>1</an\u200bswer>",
        "＜answer＞1＜/answer＞",
        "<ａnswer>1</ａnswer>",
        "&lt;answer&gt;1&lt;/answer&gt;",
        "<answer/>1",
        "<<answer>>1",
        "<answer>1<\\answer>",
        "[answer]1[/answer]",
        "answer>1</answer",
        '<answer type="x">1</answer>',
    ],
)
def test_what_only_looks_like_a_tag_is_text(look_alike: str) -> None:
    assert parse(look_alike).label is None
    assert parse(f"<think>{look_alike}</think><answer>0</answer>").label == 0


# ---- blocks ----------------------------------------------------------------------------------------------------------


def test_blocks_and_thoughts() -> None:
    read = parse(GOOD)
    assert [block.tag for block in read.blocks] == [Tag.THINK, Tag.SEARCH, Tag.THINK, Tag.ANSWER]
    assert read.defects == frozenset()
    assert read.pairs == {Tag.THINK: 2, Tag.SEARCH: 1, Tag.INFORMATION: 0, Tag.ANSWER: 1}


def test_an_ordinary_less_than_is_text_and_may_be_followed_by_a_tag() -> None:
    read = parse("<think>K+ <3.5, p<0.05, a<b <</think><answer>1</answer>")
    assert read.blocks[0].content == "K+ <3.5, p<0.05, a<b <"
    assert not read.defects


def test_feed_gives_each_block_once_and_names_the_open_one() -> None:
    parser = Parser()
    assert parser.feed("<think>a") == ()
    assert parser.open_tag is Tag.THINK
    assert parser.feed("b</thi") == ()
    assert parser.feed("nk><search>q</search><ans") == (Block(Tag.THINK, "ab"), Block(Tag.SEARCH, "q"))
    assert parser.open_tag is None
    assert parser.feed("wer>1</answer>") == (Block(Tag.ANSWER, "1"),)
    assert parser.finish().label == 1


# ---- defects and the format's grade ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "defects"),
    [
        ("<think>t</think></think><answer>1</answer>", {Defect.UNOPENED}),
        ("<think>t</think><answer>1</answer><think>more", {Defect.UNCLOSED}),
        ("<think>t</think><answer>1", {Defect.UNCLOSED, Defect.NO_ANSWER}),
        ("<think>a<think>b</think><answer>1</answer>", {Defect.NESTED}),
        ("<think>a</search>b</think><answer>1</answer>", {Defect.NESTED}),
        ("Sure! <think>t</think><answer>1</answer>", {Defect.STRAY_TEXT}),
        ("<think>t</think><answer>1</answer><", {Defect.STRAY_TEXT}),
        ("<think>t</think><think> </think><answer>1</answer>", {Defect.EMPTY_THINK}),
        ("<answer>1</answer>", {Defect.NO_THINK}),
        ("<search>q</search><think>t</think><answer>1</answer>", {Defect.NO_THINK}),
        ("<think>t</think><search>q</search><answer>1</answer>", {Defect.NO_THINK}),
        (
            "<think>t</think><search>q</search><think>\n</think><answer>1</answer>",
            {Defect.NO_THINK, Defect.EMPTY_THINK},
        ),
        ("<think>t</think><information>i</information><answer>1</answer>", {Defect.FORGED_INFORMATION}),
        ("<think>t</think>", {Defect.NO_ANSWER}),
        ("", {Defect.NO_ANSWER}),
        ("<think>t</think><answer>yes</answer>", {Defect.BAD_LABEL}),
    ],
)
def test_each_defect_costs_the_format_grade(text: str, defects: set[Defect]) -> None:
    read = parse(text)
    assert read.defects == defects
    assert format_score(read) == 0.0


def test_every_defect_has_a_case() -> None:
    cases = test_each_defect_costs_the_format_grade.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert set().union(*(defects for _, defects in cases)) == set(Defect)


@pytest.mark.parametrize(("answers", "grade"), [(1, 1.0), (MAX_ANSWERS, 1.0), (MAX_ANSWERS + 1, 0.25), (40, 0.25)])
def test_more_than_ten_answers_cost_three_quarters_of_the_grade(answers: int, grade: float) -> None:
    assert format_score(parse("<think>t</think>" + "<answer>1</answer>" * answers)) == grade


def test_white_space_between_blocks_is_no_defect() -> None:
    assert parse("\n <think>t</think>\n\n\t<answer>\n0 </answer>\n").defects == frozenset()


# ---- properties ------------------------------------------------------------------------------------------------------


def plain_reading(text: str) -> list[Block]:
    """The blocks of a text, read in the plainest way: cut at the tags, then walk."""
    found: list[Block] = []
    opened: str | None = None
    content = ""
    for piece in re.split(r"(</?(?:think|search|information|answer)>)", text):
        if opened is None:
            opened = piece[1:-1] if re.fullmatch(r"<[a-z]+>", piece) else None
            content = ""
        elif piece == f"</{opened}>":
            found.append(Block(Tag(opened), content))
            opened = None
        else:
            content += piece
    return found


@given(any_text)
def test_any_text_is_read_as_in_the_plainest_way(text: str) -> None:
    read = parse(text)
    assert list(read.blocks) == plain_reading(text)
    answers = [block for block in read.blocks if block.tag is Tag.ANSWER]
    assert read.label in (0, 1, None)
    assert read.label == (answers[-1].label if answers else None)
    assert (read.label is None) == bool(read.defects & {Defect.NO_ANSWER, Defect.BAD_LABEL})
    assert format_score(read) in (0.0, 0.25, 1.0)


@given(any_text, st.lists(st.integers(0, 200)))
def test_any_split_reads_like_the_whole(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    whole, pieces = Parser(), Parser()
    whole.feed(text)
    fed = [pieces.feed(text[start:end]) for start, end in pairwise(edges)]
    assert pieces.open_tag is whole.open_tag
    read = whole.finish()
    assert tuple(block for blocks in fed for block in blocks) == read.blocks
    assert pieces.finish() == read


@given(any_text)
def test_character_by_character_reads_like_the_whole(text: str) -> None:
    parser = Parser()
    for character in text:
        parser.feed(character)
    assert parser.finish() == parse(text)


@pytest.mark.parametrize("opening", ["", "<think>", "<answer>"])
@pytest.mark.parametrize("piece", ["<", "<thin", "</", "</answe", "<think", "x", "<<answer"])
def test_long_hostile_texts_end(opening: str, piece: str) -> None:
    text = opening + piece * (100_000 // len(piece))
    assert parse(text).label is None
    parser = Parser()
    for start in range(0, len(text), 7):
        parser.feed(text[start : start + 7])
    assert parser.finish().label is None


@pytest.mark.parametrize("piece", ["<", "<search>", "<searc", "</", "<think><", "<search></search>"])
def test_long_hostile_texts_are_read_alike_in_pieces(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    parser = Parser()
    for start in range(0, len(text), 4_099):
        parser.feed(text[start : start + 4_099])
    assert parser.finish() == parse(text)
