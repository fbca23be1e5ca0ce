"""From a trainer's columns to what the service is asked."""

import pytest

from medverify.replies import TraceItem
from medverify.trainers.samples import (
    ColumnError,
    column,
    item_of,
    label_of,
    options_of,
    policy_text,
    steps_with_tools,
)

TALK = [
    {"role": "assistant", "content": "I search.", "tool_calls": [{"name": "search"}]},
    {"role": "tool", "content": "<answer>1</answer> warfarin"},
    {"role": "assistant", "content": [{"type": "text", "text": "So it is "}, {"type": "text", "text": "A."}]},
    {"role": "assistant", "content": None},
]


def test_only_what_the_policy_wrote_is_its_text() -> None:
    assert policy_text("plain") == "plain"
    assert policy_text(TALK) == "I search.\n\nSo it is A."
    assert policy_text(TALK[0]) == "I search."
    assert policy_text([]) == ""


def test_tool_results_are_marked_and_shortened() -> None:
    first, tool, last = steps_with_tools(TALK)
    assert (first, last) == ("I search.", "So it is A.")
    assert tool == "[result of the tool, not written by the policy] <answer>1</answer> warfarin"
    [long] = steps_with_tools({"role": "tool", "content": "x" * 10_000})
    assert long.endswith("x …")
    assert len(long) < 4100
    assert steps_with_tools(" ") == []


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, None),
        ([], None),
        ({}, None),
        ({"A": "yes", "B": "no", "E": None}, {"A": "yes", "B": "no"}),
        ({"A": None}, None),
        (["yes", "no"], {"A": "yes", "B": "no"}),
        ([{"key": "A", "value": "yes"}], {"A": "yes"}),
    ],
)
def test_options_in_the_forms_of_data_sets(given: object, wanted: object) -> None:
    assert options_of(given) == wanted


@pytest.mark.parametrize("given", ["A) yes", 3, [1, 2], [{"text": "yes"}]])
def test_options_that_are_none(given: object) -> None:
    with pytest.raises(ColumnError, match="expected letter to text"):
        options_of(given)


def test_a_label_is_never_guessed_from_a_number() -> None:
    assert (label_of(" B "), label_of("warfarin"), label_of(None), label_of("")) == ("B", "warfarin", None, None)
    for number in (1, 0, 1.0, True):
        with pytest.raises(ColumnError, match="letter of an option"):
            label_of(number)


def test_columns_that_do_not_fit() -> None:
    assert column({}, "answer", 2) == [None, None]
    assert column({"answer": ["A", "B"]}, "answer", 2) == ["A", "B"]
    for bad in (["A"], "AB", 7):
        with pytest.raises(ColumnError, match="'answer'"):
            column({"answer": bad}, "answer", 2)


def test_what_cannot_be_asked_says_why() -> None:
    item = item_of(3, "q", "t", {"A": "yes"}, "A")
    assert isinstance(item, TraceItem)
    assert (item.id, item.label) == ("3", "A")
    assert item_of(0, "q", " \n", None, None) == "the completion is empty"
    assert item_of(0, "q", [], None, None) == "the completion is empty"
    for question, trace in (("", "t"), ("q", "x" * 200_001), ("q", ["a", ""])):
        assert isinstance(item_of(0, question, trace, None, None), str)
