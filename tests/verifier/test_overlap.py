import random

import pytest

from verifier.overlap import OverlapError, Pair, find_overlap
from verifier.packs import QuestionRow

WORDS = [f"w{number:03d}" for number in range(400)]


def row(id: str, question: str, answer: str = "Insulin") -> QuestionRow:
    return QuestionRow(id=id, question=question, options={"A": answer, "B": "Glucose"}, answer="A")


def text(seed: int, words: int = 30) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def test_the_same_question_is_found_whatever_its_dress() -> None:
    pool = [row("p1", "Something else entirely, about the spleen?"), row("p2", "what lowers\n potassium FAST")]
    found = find_overlap([row("q1", "What lowers potassium, fast?")], pool)
    assert found == [Pair("q1", "p2", "exact", 1.0, same_answer=True)]


def test_a_changed_word_leaves_it_near_and_the_similarity_is_exact() -> None:
    asked = text(1)
    changed = asked.replace(asked.split()[15], "another")
    (pair,) = find_overlap([row("q", asked)], [row("far", text(2)), row("near", changed, "Salbutamol")], 0.7)
    a, b = ({one[i : i + 5] for i in range(len(one) - 4)} for one in (asked, changed))
    assert (pair.pooled, pair.kind, pair.same_answer) == ("near", "near", False)
    assert pair.similarity == len(a & b) / len(a | b)
    assert 0.7 < pair.similarity < 1


def test_numbers_and_signs_tell_questions_apart() -> None:
    (pair,) = find_overlap([row("q", "A man of 40 has pH > 7.4 and a fever, and what next?")],
                           [row("p", "A man of 70 has pH < 7.4 and a fever, and what next?")], 0.5)  # fmt: skip
    assert pair.kind == "near"
    assert pair.similarity < 1


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.9, 1.0])
def test_what_the_bands_propose_is_what_a_comparison_of_all_finds(threshold: float) -> None:
    draw = random.Random(3)
    pool = [text(seed) for seed in range(60)]
    asked = []
    for number in range(60):
        words = pool[number].split()
        for _ in range(number % 12):
            words[draw.randrange(len(words))] = draw.choice(WORDS)
        asked.append(" ".join(words))
    pieces = [[{one[i : i + 5] for i in range(len(one) - 4)} for one in texts] for texts in (asked, pool)]
    expected = {
        (f"q{i}", f"p{j}")
        for i, a in enumerate(pieces[0])
        for j, b in enumerate(pieces[1])
        if len(a & b) / len(a | b) >= threshold
    }
    found = find_overlap(
        [row(f"q{i}", one) for i, one in enumerate(asked)], [row(f"p{i}", one) for i, one in enumerate(pool)], threshold
    )
    got = {(pair.question, pair.pooled) for pair in found}
    assert got <= expected
    assert len(got) >= (0.85 if threshold == 0.5 else 1) * len(expected)
    assert expected


def test_the_order_is_the_benchmarks_and_then_by_similarity() -> None:
    asked = text(5)
    words = asked.split()
    near, nearer = " ".join([*words[:-3], "x", "y", "z"]), " ".join([*words[:-1], "z"])
    found = find_overlap(
        [row("q2", text(6)), row("q1", asked)], [row("p1", near), row("p2", nearer), row("p3", text(6))], 0.6
    )
    assert [(pair.question, pair.pooled) for pair in found] == [("q2", "p3"), ("q1", "p2"), ("q1", "p1")]


def test_very_short_questions_do_not_break_it() -> None:
    assert [pair.kind for pair in find_overlap([row("q", "Why?"), row("r", "?")], [row("p", "why")])] == ["exact"]


@pytest.mark.parametrize("threshold", [0.49, 1.01, float("nan")])
def test_a_threshold_that_cannot_be_kept_is_refused(threshold: float) -> None:
    with pytest.raises(OverlapError, match=r"expected 0.5 to 1"):
        find_overlap([], [], threshold)
