"""From each publisher's columns to our rows: pure functions, one a benchmark.

The layouts are the publishers' as their dataset cards describe them; a row that has other columns is refused by name.
"""

import re
import string
from collections.abc import Mapping
from typing import Any

from eval.benchmarks.schema import BenchmarkQuestion, PlantedError

Columns = Mapping[str, Any]

_LETTERS = string.ascii_uppercase
_CHOICES_IN_QUESTION = re.compile(r"\n\s*Answer Choices:.*\Z", re.S)
_DECISIONS = {"yes": "A", "no": "B", "maybe": "C"}
_NOTHING = frozenset({"", "NA", "-1"})  # what MEDEC writes where there is no error


def medqa(row: Columns, number: int, split: str) -> BenchmarkQuestion:
    """MedQA with four options: `question, options {A: …}, answer_idx, meta_info`. Rows have no ids: their place is theirs."""
    return BenchmarkQuestion(
        id=f"medqa-{split}-{number:05d}",
        dataset="MedQA",
        split=split,
        question=row["question"],
        options=_lettered(row["options"]),
        answer=row["answer_idx"],
        meta=_said(row, "meta_info"),
    )


def medmcqa(row: Columns, number: int, split: str) -> BenchmarkQuestion:
    """MedMCQA: `id, question, opa … opd, cop (0 to 3), exp, choice_type, subject_name, topic_name`."""
    return BenchmarkQuestion(
        id=f"medmcqa-{row['id']}",
        dataset="MedMCQA",
        split=split,
        question=row["question"],
        options={letter: row[f"op{letter.lower()}"] for letter in "ABCD"},
        answer=_letter(row["cop"], 4),
        meta=_said(row, "subject_name", "topic_name", "choice_type", "exp"),
    )


def mmlu(row: Columns, number: int, split: str) -> BenchmarkQuestion:
    """MMLU: `question, subject, choices [..], answer (0 to 3)`. Rows have no ids: their place in the whole is theirs."""
    choices = row["choices"]
    return BenchmarkQuestion(
        id=f"mmlu-{row['subject']}-{number:05d}",
        dataset="MMLU-Med",
        split=split,
        question=row["question"],
        options=dict(zip(_LETTERS, choices, strict=False)),
        answer=_letter(row["answer"], len(choices)),
        meta=_said(row, "subject"),
    )


def medxpertqa(row: Columns, number: int, split: str) -> BenchmarkQuestion:
    """MedXpertQA: `id, question, options {A: … J}, label, medical_task, body_system, question_type`.

    The published question ends in its own list of "Answer Choices", which is left out: the options say the same.
    """
    return BenchmarkQuestion(
        id=f"medxpertqa-{row['id']}",
        dataset="MedXpertQA",
        split=split,
        question=_CHOICES_IN_QUESTION.sub("", row["question"]),
        options=_lettered(row["options"]),
        answer=row["label"],
        meta=_said(row, "medical_task", "body_system", "question_type"),
    )


def pubmedqa(row: Columns, number: int, split: str) -> BenchmarkQuestion:
    """PubMedQA: `pubid, question, context {contexts, …}, long_answer, final_decision`, or the authors' own file in capitals."""
    row = {name.lower(): value for name, value in row.items()}
    contexts = row["contexts"] if "contexts" in row else row["context"]["contexts"]
    return BenchmarkQuestion(
        id=f"pubmedqa-{row['pubid']}",
        dataset="PubMedQA",
        split=split,
        question=row["question"],
        contexts=list(contexts),
        options={letter: decision for decision, letter in _DECISIONS.items()},
        answer=_DECISIONS[row["final_decision"]],
        meta=_said(row, "long_answer"),
    )


def medec(row: Columns, number: int, split: str) -> PlantedError:
    """MEDEC: `Text ID, Text, Error Flag, Error Type, Error Sentence ID, Error Sentence, Corrected Sentence`, in any case."""
    row = {name.lower().replace(" ", "_"): value for name, value in row.items()}
    flag = int(row["error_flag"])
    said = {name: _unless_nothing(row.get(name)) for name in ("error_type", "error_sentence", "corrected_sentence")}
    where = _unless_nothing(row["error_sentence_id"])
    return PlantedError(
        id=f"medec-{row['text_id'] if 'text_id' in row else row['id']}",
        dataset="MEDEC",
        split=split,
        text=row["text"],
        label=1 if flag == 0 else 0,
        error_sentence_id=None if where is None else int(where),
        **said,
    )


def house(row: Columns, number: int, split: str) -> BenchmarkQuestion:
    """A question of a pack, as this project writes it."""
    before = [row["context"]] if row.get("context") else row.get("contexts")
    return BenchmarkQuestion(
        id=row["id"],
        dataset=row.get("dataset") or "pack",
        split=row.get("split") or split,
        question=row["question"],
        contexts=before or None,
        options=row["options"],
        answer=row["answer"],
        meta=row.get("meta") or {},
    )


def is_house(row: Columns) -> bool:
    """Whether a row has the columns of a pack's question file rather than a publisher's."""
    return {"id", "question", "options", "answer"} <= row.keys() and not {"answer_idx", "label"} & row.keys()


def _lettered(options: Any) -> dict[str, Any]:
    """Options as a mapping, or as the list of key and value that some copies have; letters without a text are no options."""
    pairs = options.items() if isinstance(options, Mapping) else ((one["key"], one["value"]) for one in options)
    return {key: text for key, text in pairs if text is not None}


def _letter(index: Any, count: int) -> str:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
        raise ValueError(f"the answer is {index!r}; expected a number from 0 to {count - 1}")
    return _LETTERS[index]


def _said(row: Columns, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names if row.get(name) is not None}


def _unless_nothing(value: Any) -> str | None:
    return None if value is None or str(value).strip() in _NOTHING else str(value).strip()
