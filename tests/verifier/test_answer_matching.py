import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.answers.matching import Final, final_answer, lettered_options, open_answer, option_of

OPTIONS = {"A": "Vitamin K epoxide reductase", "B": "Thrombin", "C": "The factor Xa"}


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("A", "A"),
        (" b ", "B"),
        ("(B)", "B"),
        ("C.", "C"),
        ("thrombin", "B"),
        ("Factor  Xa.", "C"),
        ("vitamin k epoxide reductase", "A"),
        ("D", None),
        ("", None),
        ("warfarin", None),
    ],
)
def test_a_label_is_a_key_or_the_text_of_an_option(label: str, key: str | None) -> None:
    assert option_of(label, OPTIONS) == key


def test_a_label_that_names_two_options_names_none() -> None:
    assert option_of("yes", {"A": "Yes", "B": "yes."}) is None
    assert option_of("a", {"a": "x", "A": "y"}) == "a"
    assert option_of("(a)", {"a": "x", "A": "y"}) == "a"
    assert option_of("А", {"А": "x", "Б": "y"}) == "А"
    assert option_of("B", {"Ａ": "x", "Ｂ": "y"}) == "Ｂ"


@pytest.mark.parametrize(
    ("trace", "label", "final"),
    [
        ("It blocks VKOR. The answer is A.", "A", Final("A", True)),
        ("It blocks VKOR. The answer is A.", "B", Final("A", False)),
        ("It blocks VKOR. The answer is A.", "Vitamin K epoxide reductase", Final("A", True)),
        ("It blocks VKOR. The answer is A.", None, Final("A", None)),
        ("It blocks VKOR. The answer is A.", "E", Final("A", None)),
        ("The answer is A or B.", "A", Final(None, False)),
        ("I do not know.", "A", Final(None, False)),
    ],
)
def test_with_options(trace: str, label: str | None, final: Final) -> None:
    assert final_answer(trace, OPTIONS, label) == final


@pytest.mark.parametrize(
    ("trace", "answer"),
    [
        ("Warfarin blocks VKOR. The answer is vitamin K epoxide reductase.", "vitamin K epoxide reductase"),
        ("So \\boxed{VKORC1}", "VKORC1"),
        ("<think>hm</think><answer> The VKOR </answer>", "The VKOR"),
        ("**Final answer:** 2.5 mg/L.", "2.5 mg/L"),
        ("The answer is heparin. No: the correct answer is warfarin; it is oral.", "warfarin"),
        ("Answer: yes\nBecause of the data.", "yes"),
        ("Final answer:\nVKOR", "VKOR"),
        ("The answer is", None),
        ("The answer is …", None),
        ("Heparin is an answer to clotting.", None),
        ("", None),
    ],
)
def test_an_open_answer_is_what_is_announced_last(trace: str, answer: str | None) -> None:
    assert open_answer(trace) == answer


@pytest.mark.parametrize(
    ("trace", "fits"),
    [
        ("The answer is the VKOR.", True),
        ("The answer is vkor!", True),
        ("The answer is VKOR or thrombin.", False),
        ("The answer is not VKOR.", False),
        ("VKOR", False),
    ],
)
def test_an_open_answer_fits_only_word_by_word(trace: str, fits: bool) -> None:
    assert final_answer(trace, None, "VKOR").fits is fits
    assert final_answer(trace, None).fits is None
    assert final_answer(trace, None, " . ").fits is None


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("Which?\nA. One\nB. Two", {"A": "One", "B": "Two"}),
        ("Which?\n(A) One\n(B) Two\n\nAnswer with a letter.", {"A": "One", "B": "Two"}),
        ("Example:\nA) x\nB) y\nC) z\nNow:\nA) One\nB) Two", {"A": "One", "B": "Two"}),
        ("Which?\nB. Two\nC. Three", None),
        ("A. Fleming discovered what?", None),
        ("What does warfarin inhibit?", None),
    ],
)
def test_options_are_read_from_the_questions_lines(question: str, options: dict[str, str] | None) -> None:
    assert lettered_options(question) == options


@given(st.text(), st.none() | st.just(OPTIONS), st.none() | st.text())
def test_any_text_can_be_read(text: str, options: dict[str, str] | None, label: str | None) -> None:
    final = final_answer(text, options, label)
    assert final.answer is None or options is None or final.answer in options
    assert not (final.fits and final.answer is None)
    lettered_options(text)
