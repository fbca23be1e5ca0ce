import gzip
import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.answers import extract_answer

DRUGS = {"A": "Warfarin", "B": "Heparin", "C": "Aspirin", "D": "Clopidogrel"}
TEN = dict(
    zip("ABCDEFGHIJ", ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"), strict=True)
)
DECISIONS = {"A": "yes", "B": "no", "C": "maybe"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is D.", "D"),
        ("The answer is (D).", "D"),
        ("**D**", "D"),
        ("The answer is **D**", "D"),
        ("**Answer:** D", "D"),
        ("Answer: __D__", "D"),
        ("### Final Answer\n\nD", "D"),
        ("答案：D", "D"),
        ("所以正确答案是Ｄ。", "D"),
        ("因此选D项", "D"),
        ("The answer is Ｄ", "D"),
        ("Answer： (Ｄ)", "D"),
        ("The answer is \u200bD\u200b.", "D"),
        ("The ans\u200bwer is\u00a0D", "D"),
        ("So it is \\boxed{D}.", "D"),
        ("$\\boxed{\\text{D}}$", "D"),
        ("The answer is $\\boxed{\\textbf{(D) Clopidogrel}}$", "D"),
        ("<answer> D </answer>", "D"),
        ("<think>A? B?</think>\n<answer>\nclopidogrel\n</answer>", "D"),
        ("(d)", "D"),
        ("I would go with (d), the thienopyridine.", "D"),
        ("Answer: d", "D"),
        ("d", "D"),
        ("Correct option: D) Clopidogrel", "D"),
        ("The correct answer is therefore most likely D, Clopidogrel.", "D"),
        ("The best option in this case would be D - Clopidogrel", "D"),
        ("D is the correct answer.", "D"),
        ("Option D is the right choice because it works.", "D"),
        ("The answer is clopidogrel.", "D"),
        ("The correct answer is the antiplatelet drug clopidogrel, taken daily.", "D"),
        ("The answer is D because A is wrong.", "D"),
        ("The answer is D. A is wrong, B is wrong, and C is dangerous.", "D"),
        ("The answer is D (not A).", "D"),
        ("The answer is D, not A.", "D"),
        ('The answer is "D".', "D"),
        ("The final answer is:\n\nD", "D"),
        ("I choose D", "D"),
        ("D. Clopidogrel", "D"),
    ],
)
def test_an_answer_in_any_dress(text: str, answer: str) -> None:
    assert extract_answer(text, DRUGS) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is not A, it is C.", "C"),
        ("The answer isn't A. It is C.", "C"),
        ("not A, it is C", "C"),
        ("Not (A), it's C.", "C"),
        ("I don't think the answer is B. The answer is C.", "C"),
        ("The answer is B. That is wrong. The answer is C", "C"),
        ("There is no doubt that the answer is C.", "C"),
        ("It is not hard to see that the answer is C.", "C"),
        ("Nobody disputes that the answer is C.", "C"),
        ("A is wrong so the answer is C.", "C"),
        ("B) - FALSE\n\nThe answer is C", "C"),
        ("The answer is C. It is wrong to assume A.", "C"),
        ("The answer is not A but C.", "C"),
        ("The answer is neither A nor B, it's C.", "C"),
        ("The answer is A. Wait, aspirin is needed first, so C.", "C"),
        ("The answer is A. Hmm, no, it is C.", "C"),
        ("The answer is A.\n\nActually, C.", "C"),
        ("Answer: A\nOn second thought, the answer is C.", "C"),
        ("The answer is ~~A~~ C", "C"),
        ("If the answer is A, then warfarin works. It does not. The answer is C.", "C"),
        ("The answer is C. If the patient bleeds, then the answer is B.", "C"),
        ("So A is wrong, so B is wrong, and so it is C.", "C"),
        ("Is the answer A? No. The answer is C", "C"),
    ],
)
def test_the_last_word_counts(text: str, answer: str) -> None:
    assert extract_answer(text, DRUGS) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A patient with fever needs rest.",
        "So A patient with fever needs rest.",
        "A patient of vitamin D deficiency. I would give calcium.",
        "The answer is A or B.",
        "The answer is A and B.",
        "Answer: A, B",
        "The answer is either (A) or (C).",
        "The answer is A and the answer is B.",
        "The answer is A. No, the answer is not A.",
        "The answer is B: Warfarin.",
        "A is correct. B is correct.",
        "The answer is E.",
        "The answer is (G)",
        "The answer is unclear.",
        "The answer is C. In truth, I cannot determine the answer.",
        "I'm sorry, but I cannot answer this question.",
        "None of the options fits.",
        "The answer is none of the above.",
        "A) Warfarin\nB) Heparin\nC) Aspirin\nD) Clopidogrel",
        "A) Warfarin is old.\nB) Heparin is older.\nC)",
        "A: Warfarin is old.\nB: Heparin is given into a vein.",
        "It could be warfarin. It could be heparin.",
        "Warfarin is an anticoagulant.",
        "So B would be too slow.",
        "The answer is (A, B, C).",
        "A is wrong. B is wrong.",
        "Is the answer D?",
    ],
)
def test_what_is_unreadable_stays_unreadable(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The most likely drug to achieve this is aspirin.", "C"),
        ("The only drug left is aspirin", "C"),
        ("Warfarin is too slow.\nHeparin is given into a vein.\nTherefore, the patient should take aspirin.", "C"),
        (
            "A) Warfarin is incorrect.\nB) Heparin is incorrect.\nC) Aspirin is correct.\nD) Clopidogrel is incorrect.",
            "C",
        ),
        ("We can eliminate answer A. Therefore, answer C is correct, and answer B is incorrect.", "C"),
        ("So one gives aspirin, rather than warfarin.", "C"),
    ],
)
def test_a_conclusion_counts_where_nothing_is_announced(text: str, answer: str) -> None:
    assert extract_answer(text, DRUGS) == answer


@pytest.mark.parametrize(
    ("text", "options", "answer"),
    [
        ("<answer> yes </answer>", DECISIONS, "A"),
        ("Answer: No, it does not.", DECISIONS, "B"),
        ("The answer is maybe.", DECISIONS, "C"),
        ("The study shows that there is no effect.", DECISIONS, None),
        ("The answer is E. coli.", {"A": "E. coli", "E": "Salmonella"}, "A"),
        ("The answer is E. coli.", {"A": "Listeria", "E": "Salmonella"}, None),
        ("The answer is vitamin D.", {"A": "Vitamin D", "D": "Vitamin A"}, "A"),
        ("The answer is B cells.", {"A": "B cells", "B": "T cells"}, "A"),
        ("The answer is B.", {"A": "B", "B": "A"}, "B"),
        ("The answer is both 1 and 2.", {"A": "1", "B": "2", "C": "Both 1 and 2", "D": "Neither"}, "C"),
        ("The answer is >81 dB.", {"A": "<81 dB", "B": ">81 dB"}, "B"),
        ("The answer is frameshift.", {"A": "Frame shift", "B": "Nonsense"}, "A"),
        ("The answer is chronic gastritis.", {"A": "Gastritis", "B": "Chronic gastritis"}, "B"),
        ("The answer is J.", TEN, "J"),
        ("I think the answer is I.", TEN, "I"),
        ("I think so.", TEN, None),
        ("The answer is 3.", {"1": "Aspirin", "2": "Heparin", "3": "Warfarin"}, "3"),
        ("The answer is b.", {"a": "Aspirin", "b": "Heparin"}, "b"),
        ("The answer is D.", {}, None),
    ],
)
def test_the_options_decide(text: str, options: dict[str, str], answer: str | None) -> None:
    assert extract_answer(text, options) == answer


TEMPLATES = [
    "The answer is {0}.",
    "The answer is ({0}).",
    "**{0}**",
    "The answer is not {0}, it is {1}.",
    "The answer is {0} or {1}.",
    "Answer: {0}\nWait, so {1}.",
    "({0})",
    "{0}",
    "{0} is the correct answer.",
    "Option {0} is wrong. Option {1} is correct.",
    "{0} is correct. {1} is correct.",
    "The answer is {0}, because {1} is wrong.",
    "\\boxed{{{0}}}",
    "答案：{0}",
    "{0}) says little. {1}) says more. So the answer must be {0}.",
    "The answer is [{0}]: {2}",
    "{0}. {2}",
    "In short: {2}",
    "The answer is {0}. {3} would be dangerous.",
    "So {0} patient comes.",
    "The answer is {0} patient.",
    "{0} patient has a fever.",
]


@given(
    template=st.sampled_from(TEMPLATES),
    letters=st.permutations(string.ascii_uppercase[:10]),
    count=st.integers(min_value=2, max_value=10),
    data=st.data(),
)
def test_other_letters_give_the_other_letter(
    template: str, letters: list[str], count: int, data: st.DataObject
) -> None:
    """No letter is treated otherwise than another: with options and text relettered, the answer is relettered."""
    texts = data.draw(st.lists(st.sampled_from(list(TEN.values())), min_size=count, max_size=count, unique=True))
    one, two = data.draw(st.permutations(range(count)))[:2]

    def answer(keys: list[str]) -> int | None:
        options = dict(zip(keys, texts, strict=False))
        found = extract_answer(template.format(keys[one], keys[two], texts[one], texts[two]), options)
        return None if found is None else keys.index(found)

    assert answer(letters) == answer(list(string.ascii_uppercase[:10]))


@given(st.text(max_size=300), st.dictionaries(st.sampled_from("ABCDEFGHIJ"), st.text(min_size=1, max_size=30)))
def test_whatever_the_text_the_answer_is_an_option_or_none(text: str, options: dict[str, str]) -> None:
    assert extract_answer(text, options) in {None, *options}


@given(
    st.text(max_size=200),
    st.sampled_from(["The answer is {}.", "Final answer: ({})", "\\boxed{{{}}}"]),
    st.sampled_from("ABCD"),
)
def test_nothing_before_the_last_statement_changes_it(before: str, statement: str, letter: str) -> None:
    assert extract_answer(f"{before}\n\n{statement.format(letter)}", DRUGS) == letter


#: Of the texts in which both we and the author of the data read an answer, the share that agree; of all, the share we read.
AGREEMENT = {
    "packs/usmle_dev100_n29": (0.95, 0.47),
    "packs/medmcqa_dev1000_n9": (0.95, 0.45),
    "packs/pubmedqa_other500_ctx": (1.0, 0.44),
    "pool/mmlupro_health": (0.997, 0.97),
    "pool/mmlupro_biology": (0.99, 0.91),
}


@pytest.mark.parametrize(("pack", "levels"), AGREEMENT.items(), ids=AGREEMENT)
def test_it_agrees_with_the_authors_of_real_traces(repository: Path, pack: str, levels: tuple[float, float]) -> None:
    """The authors often asked the model a second time for its letter, so that not every text holds what they wrote down."""
    folder = repository / ".." / "shared" / "data"
    if not (folder / f"{pack}.traces.jsonl.gz").exists():
        pytest.skip("the packs in ../shared/data are not on this machine")
    with gzip.open(folder / f"{pack}.questions.jsonl.gz") as lines:
        options = {row["id"]: row["options"] for row in map(json.loads, lines)}
    with gzip.open(folder / f"{pack}.traces.jsonl.gz") as lines:
        rows = [json.loads(line) for number, line in enumerate(lines) if number % 10 == 0]
    # Where the author guessed for want of an answer, the guess is no reading.
    read = [row["pred_extracted_from_text"] if "pred_extracted_from_text" in row else row["pred"] for row in rows]
    ours = [extract_answer(row["reasoning"], options[row["qid"]]) for row in rows]
    pairs = list(zip(ours, read, strict=True))
    both = [ours == theirs for ours, theirs in pairs if ours and theirs]
    agreement, share = levels
    assert sum(both) / len(both) >= agreement
    assert sum(ours is not None for ours, _ in pairs) / len(pairs) >= share


@pytest.mark.parametrize(
    "text",
    [
        "I don't think the answer is B",
        "I would not say that the answer is B.",
        "I doubt the answer is B.",
        "Nobody would say the answer is B",
        "There is no way the answer is B",
        "Under no circumstances is the answer B",
        "The student's wrong answer is B.",
        "The answer is B. This is incorrect.",
        "The answer is B, which is wrong",
        "Some say the answer is B, but they are wrong.",
    ],
)
def test_what_is_denied_is_not_chosen(text: str) -> None:
    assert extract_answer(text, DRUGS) is None
