"""Question and trace files: questions with their gold answer, and several labelled traces for each."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from verifier.types import Case


class PackError(ValueError):
    """A pack that cannot be read; the message names file, line and what was expected."""


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """A case and whether its trace reaches the right final answer; None where the answer is unreadable."""

    case: Case
    label: Literal[0, 1] | None
    question_id: str


def read_pack(prefix: Path, traces_per_question: int | None = None) -> list[LabelledCase]:
    """Read `PREFIX.questions.jsonl[.gz]` and `PREFIX.traces.jsonl[.gz]`.

    Args:
        prefix: path without the two endings.
        traces_per_question: keep the first so many traces of each question; all if None.

    Raises:
        PackError: a file is missing or a row lacks a field.
    """
    questions = {row["id"]: row for row in _rows(prefix, "questions", ("id", "question"))}
    taken: dict[str, int] = {}
    cases = []
    for row in _rows(prefix, "traces", ("qid", "trace_id", "reasoning", "trace_label")):
        question = questions.get(row["qid"])
        if question is None:
            raise PackError(f"{prefix}: trace {row['trace_id']!r} belongs to no question ({row['qid']!r})")
        taken[row["qid"]] = taken.get(row["qid"], 0) + 1
        if traces_per_question is None or taken[row["qid"]] <= traces_per_question:
            text = (
                f"{question['context']}\n\n{question['question']}" if question.get("context") else question["question"]
            )
            asked = {"text": text, "options": question.get("options")}
            case = Case.model_validate({"id": row["trace_id"], "question": asked, "trace": row["reasoning"]})
            cases.append(LabelledCase(case, row["trace_label"], row["qid"]))
    return cases


def _rows(prefix: Path, part: str, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    path = next((path for end in (".jsonl.gz", ".jsonl") if (path := Path(f"{prefix}.{part}{end}")).is_file()), None)
    if path is None:
        raise PackError(f"no such file: {prefix}.{part}.jsonl or .jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                missing = [field for field in fields if field not in row]
            except (ValueError, TypeError) as error:
                raise PackError(f"{path}, line {number}: not a JSON object ({error})") from error
            if missing:
                raise PackError(f"{path}, line {number}: missing {', '.join(missing)}")
            yield row
