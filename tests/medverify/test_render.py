from io import StringIO

import pytest
from front_door_fakes import judgment
from rich.console import Console, RenderableType

from medverify.cli.render import panel, summary, table
from verifier.types import Case

CASE = Case(id="c1", question="What does it inhibit?", options={"A": "VKOR"}, trace=["It blocks VKOR.", "A."])
MARKUP = ["[bold]", "[/bold]", "[/]", "[article in French]", "[red]x", "a\\", "[link=http://x]"]


def shown(what: RenderableType) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_panel_holds_question_reasoning_evidence_and_verdict() -> None:
    text = shown(panel(CASE, judgment()))
    for part in (
        "c1", "What does it inhibit?", "A. VKOR", "Step 1: It blocks VKOR.", "The reasoning claims VKOR.",
        "Searched for “warfarin”", "1. Warfarin  score 0.500  A book", "It inhibits VKOR.",
        "Verdict: free of errors", "p(1) = 0.900", "label mass 0.7500", "status scored", "24 tokens written",
    ):  # fmt: skip
        assert part in text


def test_verdicts_in_words() -> None:
    assert "contains an error" in shown(panel(CASE, judgment(p=0.2)))
    assert "contains an error" in shown(table([judgment(p=0.2)]))


@pytest.mark.parametrize("view", [lambda failed: panel(CASE, failed), lambda failed: table([failed])])
def test_a_failure_says_why_and_has_no_number(view: object) -> None:
    text = shown(view(judgment(p=None)))  # type: ignore[operator]
    assert "not judged" in text
    assert "engine_failed" in text
    assert "the server is [down]" in text
    assert "p(1) =" not in text
    assert "0.5" not in text


@pytest.mark.parametrize("text", MARKUP)
def test_what_looks_like_markup_is_shown_as_it_is(text: str) -> None:
    case = Case(id=text, question=text, options={"A": text}, trace=text)
    found = judgment(text, query=text, title=text)
    assert shown(panel(case, found)).count(text) == 6
    assert shown(table([found])).count(text) == 2


def test_a_summary_counts_every_outcome() -> None:
    line = summary([judgment(), judgment(p=0.1), judgment(p=None), judgment(p=None)])
    assert line == "4 judged or tried: 1 free of errors, 1 with errors; 2 engine_failed"


def test_a_calibrated_probability_stands_beside_what_was_said() -> None:
    calibrated = judgment().model_copy(update={"p_calibrated": 0.625})
    assert "p(1) = 0.900   calibrated 0.625" in shown(panel(CASE, calibrated))
    text = shown(table([calibrated, judgment("c2", None)]))
    assert "calibrated" in text
    assert "0.625" in text
    assert "calibrated" not in shown(panel(CASE, judgment())) + shown(table([judgment()]))


def test_thoughts_and_searches_stand_in_the_order_in_which_they_came() -> None:
    text = shown(panel(CASE, judgment().model_copy(update={"reasoning": "It may inhibit.\n\nThe passages say so."})))
    parts = [text.index(part) for part in ("It may inhibit.", "Searched for", "The passages say so.", "Verdict:")]
    assert parts == sorted(parts)
