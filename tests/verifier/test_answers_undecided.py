"""Texts that leave the choice open, or try to be read as several answers at once: what a policy under reward would write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.answers import extract_answer

DRUGS = {"A": "Warfarin", "B": "Heparin", "C": "Aspirin", "D": "Clopidogrel"}


@pytest.mark.parametrize(
    "text",
    [
        "The answer is A. B. C.",
        "The answer is A\nB",
        "Answer:\nA\nB\nC\nD",
        "Answer: A B C D",
        "Answer: A|B",
        "Answer: A; B",
        "Answer: A / C",
        "Answer: A vs C",
        "Answer: [A][B]",
        "The answer is (B)(C)",
        "The answer is A to D",
        "The answer is A and/or B",
        "The answer is one of A, B, C, D.",
        "The answer is Warfarin. Heparin. Aspirin. Clopidogrel.",
        "The answer is Warfarin Heparin Aspirin Clopidogrel",
        "The answer is A. Warfarin B. Heparin C. Aspirin D. Clopidogrel",
        "\\boxed{A} \\boxed{B}",
        "\\boxed{\\text{B}} or \\boxed{\\text{C}}",
        "\\boxed{A, B, C, D}",
        "\\boxed{ABCD}",
        "<answer>A</answer><answer>B</answer>",
    ],
)
def test_a_list_decides_nothing(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    "text",
    [
        "B, or perhaps A",
        "The answer is B, or perhaps A",
        "Answer: B or maybe A",
        "The answer is B (maybe A).",
        "The answer is B, though it could be A.",
        "The answer is B. It might also be A.",
        "The answer is A if he bleeds, otherwise B.",
        "The answer is B, but A is also correct.",
        "The answer is B. Option A is also correct.",
        "The correct answer is either C. Aspirin or D. Clopidogrel.",
    ],
)
def test_who_hedges_between_two_has_not_answered(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    "text",
    [
        "The answer is anything but B.",
        "The answer is unlikely to be B.",
        "The answer is far from B.",
        "The answer cannot be B.",
        "The answer is not A or B.",
        "The answer is neither A, B nor D.",
        "It would be wrong to answer B.",
        "I never choose B.",
        "Don't pick B.",
        "B is not the answer.",
    ],
)
def test_more_ways_to_deny(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is not A, B, or D. It is C.", "C"),
        ("The answer is C (A, B and D are wrong).", "C"),
        ("The answer is D. A, B and C are wrong.", "D"),
        ("The answer is D. A, B and C would be too slow.", "D"),
        ("The answer is D. A. Warfarin is wrong.", "D"),
        ("The answer is D.\nA) Warfarin B) Heparin C) Aspirin D) Clopidogrel", "D"),
        ("The answer is C. B is also possible but less likely.", "C"),
        ("The answer is C, also known as acetylsalicylic acid.", "C"),
        ("The answer is A to stop clotting.", "A"),
        ("The answer is ~~A~~ C", "C"),
        ("The answer is A\u0336 C", "C"),
        ("I don't choose B. The answer is C", "C"),
        ("First \\boxed{A}. But on reflection it is \\boxed{C}", "C"),
        ("\\boxed{A}, \\boxed{A}", "A"),
        ("Is it \\boxed{A}? The answer is C", "C"),
    ],
)
def test_a_decision_beside_other_options_is_one(text: str, answer: str) -> None:
    assert extract_answer(text, DRUGS) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>The answer is A.</think>\nSo I pick C.", "C"),
        ("<think>The answer is A.</think>\nAspirin is the best choice.", "C"),
        ("<think>The answer is A.</think>\nI have thought about it.", None),
        ("<think>The answer is A.</think>\nIt is A or B.", None),
        ("<think>no</think>\n\n<answer>B</answer>", "B"),
        ("<think>The answer is A.</think>  \u200b ", "A"),  # nothing follows
        ("<think>The answer is A.", "A"),  # cut off
    ],
)
def test_thoughts_count_only_where_nothing_follows_them(text: str, answer: str | None) -> None:
    assert extract_answer(text, DRUGS) == answer


@given(
    letters=st.lists(st.sampled_from("ABCD"), min_size=2, max_size=6),
    between=st.sampled_from([" ", ", ", ". ", "; ", "/", " | ", "\n", " or ", " and ", ") ("]),
    announced=st.sampled_from(
        ["The answer is ", "Answer: ", "\\boxed{", "My choice: ", "答案：", "Ответ: ", "Final answer:\n"]
    ),
)
def test_no_list_of_different_letters_is_an_answer(letters: list[str], between: str, announced: str) -> None:
    text = announced + between.join(letters) + ("}" if announced.endswith("{") else "")
    assert extract_answer(text, DRUGS) is None or len(set(letters)) == 1
