"""Which columns of a row hold what, and the cases that a row asks to be judged."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from string import ascii_uppercase
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eval.cases import BadLine
from eval.rerank.sources import Row, Source
from verifier.types import Case

_LOOKED_AT = 100  # rows in which a column must occur at least once


class ColumnError(ValueError):
    """A column that is not there; the message lists those that are."""


class Columns(BaseModel):
    """The columns that decide what is judged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str = "question"
    trace: Annotated[str, Field(description="Text or steps; inside a sample that is an object, the key of them.")] = (
        "trace"
    )
    options: str | None = None
    samples: Annotated[str | None, Field(description="A list of samples: one row is a question with all of them.")] = (
        None
    )


def check_columns(source: Source, named: Mapping[str, str | None]) -> frozenset[str]:
    """The columns of the first rows; each that a flag names must be among them.

    Args:
        source: the file.
        named: flag to the column that it names; None where it names none.

    Raises:
        ColumnError: one is not there.
        SourceError: the file cannot be read.
    """
    found = dict[str, None]()
    for row in islice(source.rows(), _LOOKED_AT):
        if isinstance(record := parse(source, row), dict):
            found |= dict.fromkeys(record)
    for flag, name in named.items():
        if name is not None and name not in found:
            close = get_close_matches(name, found, n=1, cutoff=0.5)
            mean = f"; did you mean {flag} {close[0]}?" if close else f"; name one with {flag}."
            raise ColumnError(f"{source.path}: no column {name!r}{mean} The columns are: {', '.join(found) or 'none'}")
    return frozenset(found)


def parse(source: Source, row: Row) -> dict[str, Any] | BadLine:
    """A row as a record."""
    try:
        record = json.loads(row.text.decode())
    except (ValueError, RecursionError) as error:
        return BadLine(row.number, (f"not JSON ({error})",), source.unit)
    if not isinstance(record, dict):
        return BadLine(row.number, (f"expected an object, found {type(record).__name__}",), source.unit)
    return record


def cases_of(columns: Columns, source: Source, row: Row, record: dict[str, Any]) -> Iterator[tuple[int, Case | BadLine]]:
    """What a row asks to be judged: the place among its samples (0 if the row is one), and the case.

    The id of a case is the number of its row, and after a point the place of its sample.
    """
    if columns.samples is None:
        yield 0, _case(columns, source, row, record, f"{row.number}", record.get(columns.trace), columns.trace)
        return
    samples = record.get(columns.samples)
    if not isinstance(samples, list) or not samples:
        problem = f"{columns.samples}: expected a list of samples, found {_kind(samples)}"
        yield 0, BadLine(row.number, (problem,), source.unit)
        return
    for place, sample in enumerate(samples):
        name = f"{columns.samples}[{place}]"
        if isinstance(sample, dict):
            sample, name = sample.get(columns.trace), f"{name}.{columns.trace}"  # noqa: PLW2901 - what is inside of it
        yield place, _case(columns, source, row, record, f"{row.number}.{place}", sample, name)


def _case(
    columns: Columns, source: Source, row: Row, record: dict[str, Any], id: str, trace: object, name: str
) -> Case | BadLine:
    if not isinstance(trace, str | list):
        return BadLine(row.number, (f"{name}: expected a text or a list of steps, found {_kind(trace)}",), source.unit)
    question = {"text": record.get(columns.question)}
    if columns.options is not None:
        question["options"] = _options(record.get(columns.options))
    try:
        return Case.model_validate({
            "id": id,
            "question": question,
            "trace": {"text": trace} if isinstance(trace, str) else {"steps": trace},
        })  # fmt: skip
    except ValidationError as error:
        names = {("question", "text"): columns.question, ("question", "options"): columns.options or ""}
        problems = []
        for item in error.errors():
            column = names.get(item["loc"][:2], name)  # type: ignore[call-overload]
            problems.append(f"{'.'.join([column, *map(str, item['loc'][2:])])}: {item['msg']}")
        return BadLine(row.number, tuple(problems), source.unit)


def _options(value: object) -> object:
    """Letter to text: as it is, without the nulls of a table's struct; or from a list, with or without letters of its own."""
    if isinstance(value, dict):
        return {letter: text for letter, text in value.items() if text is not None} or None
    if not isinstance(value, list):
        return value
    if all(isinstance(item, dict) and item.keys() == {"key", "value"} for item in value):
        return {str(item["key"]): item["value"] for item in value} or None
    return dict(zip(ascii_uppercase, value, strict=False)) if len(value) <= len(ascii_uppercase) else value


def _kind(value: object) -> str:
    return "nothing" if value is None else "an empty list" if value == [] else type(value).__name__
