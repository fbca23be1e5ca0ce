"""Texts that take back, attribute or merely mention the letter that they name."""

import pytest

from verifier.answers import extract_answer

DRUGS = {"A": "Heparin", "B": "Warfarin", "C": "Aspirin", "D": "Vitamin K deficiency"}


@pytest.mark.parametrize(
    "text",
    [
        "The answer is B. No, that's wrong.",
        "The answer is B. That's wrong.",
        "The answer is B. Wait, no.",
        "The answer is B. Wait, that's not right.",
        "The answer is B. Hmm, that is not correct.",
        "The answer is B. On reflection, that cannot be right.",
        "The answer is B. Scratch that.",
        "The answer is B. Ignore that.",
        "The answer is B. Actually, I take that back.",
        "The answer is B. Never mind, I have no idea.",
        "The answer is B. Hold on.",
        "Answer: B. On reflection, C is better.",
        r"\boxed{B} Wait, let me reconsider.",
    ],
)
def test_an_answer_that_is_taken_back_is_none(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is B. Wait, no. It's C.", "C"),
        ("The answer is B. Wait, no.\nAnswer: C", "C"),
        ("The answer is B. Scratch that, the answer is A.", "A"),
        ("At first I thought the answer was B, but it is C.", "C"),
        ("The answer is B, which I now see is wrong; it should be C.", "C"),
        ("The answer is B. Hmm, no, C is right.", "C"),
        ("Answer: B. Actually, C is correct.", "C"),
        ("Answer: B\n\nFinal: C", "C"),
        ("**Final:** C", "C"),
        ("The answer is B. It should be a drug with many interactions.", "B"),
        ("The answer is B. It must be given with food.", "B"),
        ("The answer is B. Hmm, no need to look further.", "B"),
        ("The answer is B. Actually, C is better known for its effect on platelets.", "B"),
        ("Some would say that the answer is B, but I think it's C.", "C"),
        ("The answer is B. Wait, let me double check. Yes, it blocks the epoxide reductase.", "B"),
        ("The answer is B. No need to reconsider.", "B"),
        ("The answer is B, but it is a drug with many interactions.", "B"),
    ],
)
def test_what_is_put_in_its_place_is_the_answer(text: str, answer: str) -> None:
    assert extract_answer(text, DRUGS) == answer


@pytest.mark.parametrize(
    "text",
    [
        "One might say the answer is B. But one would be mistaken.",
        "My friend says the answer is B. I disagree.",
        "Everyone thinks the answer is B. Everyone is wrong.",
        "It's a common misconception that the answer is B.",
        "I refuse to say the answer is B.",
    ],
)
def test_what_others_think_is_no_answer(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    "text",
    [
        "B is likely wrong.",
        "B is most likely incorrect, since bleeding stops",
        "B is likely to be incorrect.",
        "B is most likely not the answer.",
        "B is likely a distractor.",
        "B is best avoided.",
        "B is right-sided.",
        "B is true but does not answer the question.",
        "B is the only answer that is not correct.",
    ],
)
def test_a_predicate_that_goes_on_to_deny_chooses_nothing(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    "text",
    [
        "This suggests heparin-induced thrombocytopenia.",
        "The most likely diagnosis is aspirin-exacerbated respiratory disease.",
        "The answer is heparin-induced thrombocytopenia.",
        "The answer is protamine, because it reverses heparin.",
        "The answer is protamine, which reverses heparin.",
        "The next highest level of vitamin K would be found with warfarin.",
    ],
)
def test_an_option_inside_another_thing_is_not_chosen(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is the vitamin K antagonist, which is warfarin.", "B"),
        ("The answer is warfarin, because it blocks the epoxide reductase.", "B"),
        ("The answer is warfarin\u2014it blocks the epoxide reductase.", "B"),
        ("B is most likely the cause.", "B"),
        ("The next best step would be warfarin.", "B"),
        ("B is likely correct.", "B"),
    ],
)
def test_what_is_said_beside_a_choice_leaves_it(text: str, answer: str) -> None:
    assert extract_answer(text, DRUGS) == answer


@pytest.mark.parametrize("text", ["答案：A B", "Ответ: A B", "Resposta: A B", "정답: B 또는 C"])
def test_two_letters_after_a_foreign_announcement_decide_nothing(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


def test_an_alternative_does_not_replace_the_answer() -> None:
    assert extract_answer("Answer: B\n\nAlternative answer: C", DRUGS) == "B"
