"""The samples in a file: which columns hold what, and the cases that a row asks to be judged."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from string import ascii_uppercase
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs import strict_json
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


@dataclass(frozen=True, slots=True)
class Samples:
    """A file and where the samples are in it."""

    source: Source
    columns: Columns

    def parse(self, row: Row) -> dict[str, Any] | BadLine:
        """A row as a record."""
        try:
            record = strict_json.parse(row.text.decode())
        except ValueError as error:
            return self.bad(row, f"not JSON ({error})")
        if not isinstance(record, dict):
            return self.bad(row, f"expected an object, found {type(record).__name__}")
        return record

    def cases(self, row: Row, record: dict[str, Any]) -> Iterator[tuple[int, Case | BadLine]]:
        """What a row asks to be judged: the place among its samples (0 if the row is one), and the case.

        The id of a case is the number of its row, and after a point the place of its sample.
        """
        columns = self.columns
        question = {"text": record.get(columns.question)}
        if columns.options is not None:
            question["options"] = _options(record.get(columns.options))
        if columns.samples is None:
            yield 0, self._case(row, str(row.number), question, record.get(columns.trace), columns.trace)
            return
        samples = record.get(columns.samples)
        if not isinstance(samples, list) or not samples:
            yield 0, self.bad(row, f"{columns.samples}: expected a list of samples, found {_kind(samples)}")
            return
        for place, sample in enumerate(samples):
            name, trace = f"{columns.samples}[{place}]", sample
            if isinstance(sample, dict):
                name, trace = f"{name}.{columns.trace}", sample.get(columns.trace)
            yield place, self._case(row, f"{row.number}.{place}", question, trace, name)

    def cases_after(self, last: tuple[int, int], on_bad: Callable[[BadLine], None]) -> Iterator[Case]:
        """The cases of the file after a row and a place among its samples, in order.

        Args:
            last: row and place; (0, -1) for all cases.
            on_bad: told of each row, or sample, that is none.

        Raises:
            SourceError, OSError: the file cannot be read.
        """
        last_row, last_place = last
        for row in self.source.rows(after=last_row - 1):
            if row.number == last_row and self.columns.samples is None:
                continue
            record = self.parse(row)
            if isinstance(record, BadLine):
                on_bad(record)
                continue
            for place, case in self.cases(row, record):
                if row.number == last_row and place <= last_place:
                    continue
                if isinstance(case, Case):
                    yield case
                else:
                    on_bad(case)

    def bad(self, row: Row, *problems: str) -> BadLine:
        """What is wrong with a row."""
        return BadLine(row.number, problems, self.source.unit)

    def _case(self, row: Row, id: str, question: dict[str, Any], trace: object, name: str) -> Case | BadLine:
        if not isinstance(trace, str | list):
            return self.bad(row, f"{name}: expected a text or a list of steps, found {_kind(trace)}")
        written = {"text": trace} if isinstance(trace, str) else {"steps": trace}
        try:
            return Case.model_validate({"id": id, "question": question, "trace": written})
        except ValidationError as error:
            return self.bad(row, *(self._problem(item["loc"], item["msg"], name) for item in error.errors()))

    def _problem(self, place: tuple[int | str, ...], message: str, trace: str) -> str:
        """A field of a case as the column that it came from, and what is wrong there."""
        column = trace
        if place[:1] == ("question",):
            column = (self.columns.options or "") if place[1:2] == ("options",) else self.columns.question
        return f"{'.'.join([column, *map(str, place[2:])])}: {message}"


def check_columns(source: Source, named: Mapping[str, str | None]) -> frozenset[str]:
    """The columns of the first rows; each that a flag names must be among them.

    Args:
        source: the file.
        named: flag to the column that it names; None where it names none.

    Raises:
        ColumnError: one is not there.
        SourceError: the file cannot be read.
    """
    samples, found, bad = Samples(source, Columns()), dict[str, None](), list[BadLine]()
    for row in islice(source.rows(), _LOOKED_AT):
        if isinstance(record := samples.parse(row), dict):
            found |= dict.fromkeys(record)
        else:
            bad.append(record)
    if bad and not found:
        raise ColumnError(f"{source.path}, {bad[0]}; none of the first {len(bad)} rows is one with columns")
    for flag, name in named.items():
        if name is not None and name not in found:
            close = get_close_matches(name, found, n=1, cutoff=0.5)
            mean = f"; did you mean {flag} {close[0]}?" if close else f"; name one with {flag}."
            raise ColumnError(f"{source.path}: no column {name!r}{mean} The columns are: {', '.join(found) or 'none'}")
    return frozenset(found)


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
