"""Answers announced in other languages and formats, and options with keys of any script."""

import pytest

from verifier.answers import extract_answer
from verifier.answers.matching import Final, final_answer

TEXTS = ("Warfarin", "Heparin", "Aspirin", "Clopidogrel")
DRUGS = dict(zip("ABCD", TEXTS, strict=True))
CYRILLIC = dict(zip("АБВГ", TEXTS, strict=True))
THAI = dict(zip("กขคง", TEXTS, strict=True))
WIDE = dict(zip("ＡＢＣＤ", TEXTS, strict=True))
WIDE_NUMBERS = dict(zip("１２３４", TEXTS, strict=True))
STEMS = dict(zip("甲乙丙丁", TEXTS, strict=True))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Ответ: B", "B"),
        ("Respuesta: C", "C"),
        ("La respuesta correcta es la C.", "C"),
        ("Respuesta C", "C"),
        ("Réponse : D", "D"),
        ("La bonne réponse est la D.", "D"),
        ("Antwort: A", "A"),
        ("Die richtige Antwort ist B.", "B"),
        ("Die Antwort ist nicht A, sondern B.", "B"),
        ("Risposta corretta: B", "B"),
        ("Resposta: B", "B"),
        ("Antwoord: B", "B"),
        ("Odpowiedź: B", "B"),
        ("Doğru cevap B.", "B"),
        ("Jawaban: B", "B"),
        ("Đáp án: B", "B"),
        ("الإجابة: B", "B"),
        ("उत्तर: B", "B"),
        ("คำตอบคือ B", "B"),
        ("정답: B", "B"),
        ("정답은 B입니다", "B"),
        ("答案：D", "D"),
        ("答案应该是C", "C"),
        ("答案选C", "C"),
        ("正解はB", "B"),
        ('{"answer": "C"}', "C"),
        ('```json\n{"final_answer": "C", "why": "A is too slow"}\n```', "C"),
        ('{"reasoning": "A is wrong", "answer": "C", "confidence": 0.9}', "C"),
        ('{"answer":"C","A":"no","B":"no"}', "C"),
        ("My choice: D", "D"),
        ("My final pick would be D.", "D"),
        ("neither A nor B, but C", "C"),
        ("I'd go with C", "C"),
        ("Option C is correct", "C"),
    ],
)
def test_answers_announced_in_other_words(text: str, answer: str) -> None:
    assert extract_answer(text, DRUGS) == answer


@pytest.mark.parametrize(
    "text",
    [
        "La respuesta no es A.",
        "La réponse n'est pas A.",
        "Die Antwort ist nicht A.",
        "Antwort A ist falsch.",
        "Ответ не B.",
        "答案不是A",
        "正解はBではない",
        "答案：A或B",
        "Respuesta: A o B",
        # Words that begin like a letter.
        "Réponse : Déficit en fer",
        "Respuesta: A la paciente se le da heparina",
        '{"answer": "none"}',
        '{"answer": ["A", "B"]}',
    ],
)
def test_what_is_denied_or_open_in_other_words_is_not_chosen(text: str) -> None:
    assert extract_answer(text, DRUGS) is None


@pytest.mark.parametrize(
    ("options", "text", "answer"),
    [
        (CYRILLIC, "Ответ: Б", "Б"),
        (CYRILLIC, "Правильный ответ — Б.", "Б"),
        (CYRILLIC, "Ответ: не А, а Б", "Б"),
        (CYRILLIC, "Б", "Б"),
        (CYRILLIC, "The answer is Г.", "Г"),
        (CYRILLIC, "The answer is B.", None),  # a Latin letter is not the Cyrillic one that looks like it
        (CYRILLIC, "Ответ: В лечении нужен аспирин", None),  # "in the treatment"
        (CYRILLIC, "Ответ: Анализ", None),
        (THAI, "คำตอบ: ข", "ข"),
        (THAI, "The answer is ข.", "ข"),
        (THAI, "คำตอบ: การ", None),
        (WIDE, "The answer is Ｂ", "Ｂ"),
        (WIDE, "The answer is (b).", "Ｂ"),
        (WIDE_NUMBERS, "Answer: 3", "３"),
        (WIDE_NUMBERS, "答案：３", "３"),
        (dict(zip("①②③④", TEXTS, strict=True)), "正解は③", "③"),
        (STEMS, "答案是乙。", "乙"),
        (STEMS, "选乙项", "乙"),
        (STEMS, "答案是甲状腺", None),  # the thyroid
        ({"A\u200b": "Warfarin", "B": "Heparin"}, "The answer is A.", "A\u200b"),
        ({"a": "Warfarin", "A": "Heparin"}, "The answer is a.", "a"),
        ({"A": "Warfarin", "Ａ": "Heparin"}, "The answer is A.", None),  # the same letter twice
        ({"\u200b": "Warfarin", "B": "Heparin"}, "The answer is B.", "B"),
    ],
)
def test_keys_are_whatever_the_question_says(options: dict[str, str], text: str, answer: str | None) -> None:
    assert extract_answer(text, options) == answer


@pytest.mark.parametrize(
    "text",
    ["D\ufe0f", "the answer is Ⓓ", "Answer: 𝐃", "The answer is D\u202e", "ans\x00wer: D", "Answer: D<|im_end|>"],
)
def test_what_is_not_seen_changes_nothing(text: str) -> None:
    assert extract_answer(text, DRUGS) == "D"


def test_a_label_in_full_width_is_the_key_itself() -> None:
    assert final_answer("答案：３", WIDE_NUMBERS, "３") == Final("３", True)
