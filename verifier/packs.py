"""Question and trace files: questions with their gold answer, and several labelled traces for each."""

import gzip
import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs.durable import publish
from configs.reasons import reason
from retrieval.passage import SourceError
from retrieval.sources.json_lines import bounded_lines
from verifier.answers.matching import option_of
from verifier.types import Case, NonEmpty, OptionKey, Question, Trace

#: What stands in `finish` of a trace that could not be made: such a row is counted by whoever made it and read by nobody.
FAILED = "failed"


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


class QuestionRow(BaseModel):
    """A line of `PREFIX.questions.jsonl`; columns beyond these are kept as they are."""

    model_config = ConfigDict(extra="allow")

    id: str
    question: NonEmpty
    context: str | None = None
    contexts: list[str] | None = None
    options: dict[OptionKey, NonEmpty] | None = None
    answer: str | None = None

    def asked(self) -> Question:
        """The question as a judge or a generator is asked it: what it is about first."""
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
    finish: str | None = None


_Row = TypeVar("_Row", QuestionRow, _TraceRow)


def read_questions(prefix: Path) -> list[QuestionRow]:
    """Read `PREFIX.questions.jsonl[.gz]`.

    A byte order mark and blank lines are passed over.

    Raises:
        PackError: the file is missing or damaged, a row is not what it should be, two have one id, or a right answer is
            no option.
    """
    rows: dict[str, QuestionRow] = {}
    for where, row in _rows(prefix, "questions", QuestionRow):
        if row.id in rows:
            raise PackError(f"{where}, field id: two questions have the id {row.id!r}")
        _check_option(where, "answer", row.answer, row)
        rows[row.id] = row
    return list(rows.values())


def read_pack(prefix: Path, traces_per_question: int | None = None) -> list[LabelledCase]:
    """Read `PREFIX.questions.jsonl[.gz]` and `PREFIX.traces.jsonl[.gz]`; traces that could not be made are left out.

    Args:
        prefix: path without the two endings.
        traces_per_question: keep the first so many traces of each question; all if None.

    Raises:
        PackError: a file is missing or damaged, a row is not what it should be, a trace belongs to no question, two have one id,
            a question has two right answers or one that is no option, or a trace's answer names an option otherwise than by its
            key.
    """
    questions = {row.id: row for row in read_questions(prefix)}
    asked = {name: row.asked() for name, row in questions.items()}  # once each: all its traces share it
    taken: dict[str, int] = {}
    seen, golds = set[str](), dict[str, str]()
    cases = []
    for where, row in _rows(prefix, "traces", _TraceRow):
        question = questions.get(row.qid)
        if question is None:
            raise PackError(f"{where}, field qid: trace {row.trace_id!r} belongs to no question ({row.qid!r})")
        if row.trace_id in seen:
            raise PackError(f"{where}, field trace_id: two traces have the id {row.trace_id!r}")
        seen.add(row.trace_id)
        _check_pred(where, row, question)
        _check_option(where, "gold", row.gold, question)
        gold = row.gold or question.answer
        if gold and golds.setdefault(row.qid, gold) != gold:
            raise PackError(
                f"{where}, field gold: question {row.qid!r} has two right answers, {golds[row.qid]!r} and {gold!r}"
            )
        if row.finish == FAILED:
            continue
        taken[row.qid] = taken.get(row.qid, 0) + 1
        if traces_per_question is None or taken[row.qid] <= traces_per_question:
            case = Case(id=row.trace_id, question=asked[row.qid], trace=Trace(text=row.reasoning))
            cases.append(LabelledCase(case, row.trace_label, row.qid, row.generator or "", row.pred or None, gold))
    return cases


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines, gzipped if the name ends in `.gz`. The file appears when it is whole; same rows, same bytes."""
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as file, _packed(file, gz=path.suffix == ".gz") as lines:
        for row in rows:
            lines.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    publish(temporary, path)


def _packed(file: IO[bytes], *, gz: bool) -> AbstractContextManager[IO[bytes]]:
    # Neither a name nor a time in the header: they would differ from run to run.
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) if gz else nullcontext(file)  # type: ignore[return-value]


def pack_file(prefix: Path, part: Literal["questions", "traces"]) -> Path | None:
    """The file of a pack that holds this part, gzipped or not; None if there is none."""
    return next((path for end in (".jsonl.gz", ".jsonl") if (path := Path(f"{prefix}.{part}{end}")).is_file()), None)


def _check_option(where: str, field: str, answer: str | None, question: QuestionRow) -> None:
    if answer and question.options and answer not in question.options:
        raise PackError(
            f"{where}, field {field}: {answer!r} is no option of question {question.id!r}; it has {', '.join(question.options)}"
        )


def _check_pred(where: str, row: _TraceRow, question: QuestionRow) -> None:
    """A trace may end with a letter that is no option, as real ones do; what names one must be its key, or no vote finds it."""
    if not row.pred or not question.options or row.pred in question.options:
        return
    if meant := option_of(row.pred, question.options):
        raise PackError(
            f"{where}, field pred: {row.pred!r} names option {meant!r} of question {question.id!r}: write that"
        )


def _rows(prefix: Path, part: Literal["questions", "traces"], kind: type[_Row]) -> Iterator[tuple[str, _Row]]:
    """Rows, each with file and line."""
    path = pack_file(prefix, part)
    if path is None:
        raise PackError(f"no such file: {prefix}.{part}.jsonl or .jsonl.gz")
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(bounded_lines(file, path), start=1):
                text = line.removeprefix(BOM_UTF8) if number == 1 else line
                if text.strip():
                    yield f"{path}, line {number}", kind.model_validate_json(text)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'line'}: {item['msg']}" for item in error.errors())
        raise PackError(f"{path}, line {number}: {faults}") from error
    except SourceError as error:
        raise PackError(str(error)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PackError(f"{path}, after line {number}: a damaged gzip file: {reason(error)}") from error
    except OSError as error:
        raise PackError(f"{path}, after line {number}: {reason(error)}") from error
