"""Reading an answer takes time in proportion to the text, whatever the text: no policy can stop a service with one.

Times are measured by `benchmarks.answers`; here work is counted, and the patterns themselves are looked at.
"""

import re
import sys
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import pytest

from benchmarks.answers import WORST
from verifier.answers import cues, extract_answer, forms, plain

DRUGS = {"A": "Warfarin", "B": "Heparin", "C": "Aspirin", "D": "Clopidogrel"}
_SPACE = {str(parser.parse(space)) for space in (r"\s", " ", "[ ]")}
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def _calls(text: str) -> int:
    """How many built-in functions are called, searches of patterns among them."""
    count = 0

    def on_event(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        extract_answer(text, DRUGS)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("unit", WORST)
def test_twice_the_text_is_twice_the_work(unit: str) -> None:
    once, twice = _calls(unit * 300), _calls(unit * 600)
    assert twice <= 2.1 * once + 50


def _patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for module in (cues, forms, plain):
        yield from ((name, found) for name, found in vars(module).items() if isinstance(found, re.Pattern))
    letters = forms._letters(tuple("ABCD"))
    yield from ((name, getattr(letters, name)) for name in ("bracketed", "bare", "last", "pointed"))


def _inside(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every element of a parsed pattern."""
    for code, argument in node:
        yield code, argument
        for part in argument if isinstance(argument, tuple | list) else [argument]:
            for piece in part if isinstance(part, list) else [part]:
                if isinstance(piece, parser.SubPattern):
                    yield from _inside(piece)


def _has_a_fixed_part(body: Any) -> bool:
    """Whether something must be there each time that parts the repetitions, so that a text can be cut into them in few ways.

    That is anything of one width, or white space, of which a plain text has no long runs.
    """
    for code, argument in body:
        if code in _REPEATS and argument[0] > 0 and str(argument[2]) in _SPACE:
            return True
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
            return True
        if code is codes.SUBPATTERN and _has_a_fixed_part(argument[-1]):
            return True
        if code is codes.BRANCH and all(_has_a_fixed_part(branch) for branch in argument[1]):
            return True
    return False


def test_no_pattern_repeats_something_that_is_variable_throughout() -> None:
    seen = 0
    for name, pattern in _patterns():
        for code, argument in _inside(parser.parse(pattern.pattern, pattern.flags)):
            if code in _REPEATS and argument[1] > 1 and any(inner in _REPEATS for inner, _ in _inside(argument[2])):
                seen += 1
                assert _has_a_fixed_part(argument[2]), f"{name}: {argument}"
    assert seen > 3  # it does look inside


def test_the_look_at_patterns_finds_what_it_is_for() -> None:
    ((_, argument),) = parser.parse(r"(?:[ ]?\w{1,3},?){1,9}")
    assert not _has_a_fixed_part(argument[2])
