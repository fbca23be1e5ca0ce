"""Question and trace files: questions with their gold answer, and several labelled traces for each."""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from retrieval.passage import SourceError
from retrieval.sources.json_lines import bounded_lines
from verifier.types import Case, NonEmpty, OptionKey, Question, Trace


class PackError(ValueError):
    """A pack that cannot be read; the message names file, line and what was expected."""


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """A case, and what its pack knows of the trace."""

    case: Case
    label: Literal[0, 1] | None  # whether the trace reaches the right final answer; None where that is unreadable
    question_id: str
    generator: str = ""  # who wrote the trace
    answer: str | None = None  # the option that the trace ends with; None where that is unreadable
    gold: str | None = None  # the right option


class _QuestionRow(BaseModel):
    id: str
    question: NonEmpty
    context: str | None = None
    contexts: list[str] | None = None
    options: dict[OptionKey, NonEmpty] | None = None
    answer: str | None = None

    def asked(self) -> Question:
        before = [self.context] if self.context else self.contexts or []
        return Question(text="\n\n".join([*before, self.question]), options=self.options)


class _TraceRow(BaseModel):
    qid: str
    trace_id: str = Field(min_length=1, max_length=512)
    reasoning: NonEmpty
    trace_label: Literal[0, 1] | None
    generator: str | None = None
    pred: str | None = None
    gold: str | None = None


_Row = TypeVar("_Row", _QuestionRow, _TraceRow)


def read_pack(prefix: Path, traces_per_question: int | None = None) -> list[LabelledCase]:
    """Read `PREFIX.questions.jsonl[.gz]` and `PREFIX.traces.jsonl[.gz]`.

    Args:
        prefix: path without the two endings.
        traces_per_question: keep the first so many traces of each question; all if None.

    Raises:
        PackError: a file is missing or damaged, a row is not what it should be, or a trace belongs to no question.
    """
    questions = {row.id: row for row in _rows(prefix, "questions", _QuestionRow)}
    taken: dict[str, int] = {}
    cases = []
    for row in _rows(prefix, "traces", _TraceRow):
        if row.qid not in questions:
            raise PackError(f"{prefix}: trace {row.trace_id!r} belongs to no question ({row.qid!r})")
        taken[row.qid] = taken.get(row.qid, 0) + 1
        if traces_per_question is None or taken[row.qid] <= traces_per_question:
            question = questions[row.qid]
            case = Case(id=row.trace_id, question=question.asked(), trace=Trace(text=row.reasoning))
            cases.append(
                LabelledCase(
                    case, row.trace_label, row.qid, row.generator or "", row.pred or None, row.gold or question.answer
                )
            )
    return cases


def _rows(prefix: Path, part: str, kind: type[_Row]) -> Iterator[_Row]:
    path = next((path for end in (".jsonl.gz", ".jsonl") if (path := Path(f"{prefix}.{part}{end}")).is_file()), None)
    if path is None:
        raise PackError(f"no such file: {prefix}.{part}.jsonl or .jsonl.gz")
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(bounded_lines(file, path), start=1):  # noqa: B007 - told in the messages below
                yield kind.model_validate_json(line)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'line'}: {item['msg']}" for item in error.errors())
        raise PackError(f"{path}, line {number}: {faults}") from error
    except SourceError as error:
        raise PackError(str(error)) from error
    except (EOFError, OSError, zlib.error) as error:
        raise PackError(f"{path}, after line {number}: {error}") from error
