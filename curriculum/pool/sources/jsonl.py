"""Labelled cases from JSON lines, whatever their columns are called."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from configs.settings import Place, Section
from curriculum.pool.errors import PoolError
from curriculum.pool.example import Example, question_text
from curriculum.pool.sources.base import SourceRows, SourceSettings
from retrieval.passage import SourceError
from retrieval.sources.json_lines import bounded_lines, opened, records
from verifier.types import Case, field_as_written


class Columns(Section):
    """What a line calls its fields. Those that say "may be absent" are done without in lines that lack them."""

    id: Annotated[str, Field(description="Names the trace; may be absent: file and line name it then.")] = "id"
    question: Annotated[str, Field(description="Text, or an object with `text` and `options`.")] = "question"
    options: Annotated[str, Field(description="Letter to text, beside a question that is text; may be absent.")] = (
        "options"
    )
    trace: Annotated[str, Field(description="Text, or a list of steps.")] = "trace"
    label: Annotated[str, Field(description="1 or true: right, 0 or false: wrong, null: nobody knows.")] = "label"
    question_id: Annotated[
        str, Field(description="Equal for traces of one question; may be absent: questions with one text are one.")
    ] = "question_id"
    generator: Annotated[str, Field(description="Who wrote the trace; may be absent.")] = "generator"
    answer: Annotated[
        str, Field(description="The right option or its text, for finding overlap with evaluation; may be absent.")
    ] = "answer"


class JsonlSource(SourceSettings):
    """Files of labelled cases, one a line. Files that belong together are one source: labels are balanced within it."""

    kind: Literal["jsonl"]
    files: Annotated[tuple[Place, ...], Field(min_length=1, description="`.jsonl`, each also as `.gz`.")]
    columns: Columns = Columns()


def read_jsonl_source(settings: JsonlSource, name: str) -> SourceRows:
    """The labelled cases of all files; those with the label null are left out and counted.

    Raises:
        PoolError: a file cannot be read, or a line is not a labelled case; the message names line and column.
    """
    examples, unlabelled = list[Example](), 0
    for file in settings.files:
        for where, line in _lines(file, name):
            example = _example(line, settings.columns, name, where)
            if example is None:
                unlabelled += 1
            else:
                examples.append(example)
    return SourceRows(examples, unlabelled)


def _lines(file: Path, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        with opened(file) as lines:
            yield from records(bounded_lines(lines, file), str(file))
    except SourceError as error:
        raise PoolError(f"source {name!r}: {error}") from error


def _example(line: Mapping[str, Any], columns: Columns, name: str, where: str) -> Example | None:
    if columns.label not in line:
        raise PoolError(
            f"source {name!r}: {where}: no column {columns.label!r}; name the label's column as `columns.label`, or write null "
            "where nobody knows"
        )
    label = line[columns.label]
    if label is None:
        return None
    if label not in (0, 1) or isinstance(label, float):
        raise PoolError(f"source {name!r}: {where}, column {columns.label}: expected 0, 1 or null, found {label!r:.80}")
    written = {field: line.get(getattr(columns, field)) for field in ("question", "options", "trace")}
    if written["options"] is None:
        del written["options"]
    own = line.get(columns.id)
    written["id"] = f"{name}/{where if own is None else own}"[:512]
    try:
        case = Case.model_validate(written)
    except ValidationError as error:
        faults = "; ".join(
            f"{_column(field_as_written(item['loc'], written), columns)}: {item['msg']}" for item in error.errors()
        )
        raise PoolError(f"source {name!r}: {where}: {faults}") from error
    question_id, answer = line.get(columns.question_id), line.get(columns.answer)
    return Example(
        case=case,
        label=1 if label else 0,
        question_id=_of_text(case) if question_id is None else str(question_id),
        source=name,
        generator=str(line.get(columns.generator) or ""),
        answer=None if answer is None else str(answer),
    )


def _of_text(case: Case) -> str:
    return hashlib.sha256(question_text(case.question).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _column(field: str, columns: Columns) -> str:
    """The file's own name for what the case calls `field`."""
    first, dot, rest = field.partition(".")
    return f"{getattr(columns, first, first)}{dot}{rest}"
