"""Rows of a file of samples, one after another, whatever its format: each as one JSON object in bytes.

JSON lines are read here and not through `datasets`: its reader makes tables of ten megabytes at a time, in which one bad line
ends the stream, 1 becomes 1.0 where another row has 1.5, and a missing key becomes a null; it takes ten times the memory and
seven times as long. Here a row keeps its bytes, a bad one is told by its line, and a plain file can be read again from any
place. Parquet is read by row groups, which a run that goes on can skip. Whatever else `datasets` streams (CSV, Arrow, a JSON
array) comes through it.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, cast

from configs.reasons import reason

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_BATCH = 256  # rows of Parquet that are Python objects at a time
_JSON_LINES = (".jsonl", ".ndjson")
_DATASETS = {".json": "json", ".csv": "csv", ".tsv": "csv", ".arrow": "arrow"}


class SourceError(ValueError):
    """A file that cannot be read; the message says why."""


class Row(NamedTuple):
    """One row as JSON. Whether it is JSON at all, and an object, is for the reader to find out."""

    number: int  # from 1; of JSON lines, the number of the line
    text: bytes  # without the end of the line
    at: int | None = None  # where the text starts in the file, if it can be read again from there


class Source(Protocol):
    """A file of rows."""

    @property
    def path(self) -> Path: ...

    @property
    def unit(self) -> Literal["line", "row"]:
        """What rows are numbered in."""
        ...

    @property
    def schema(self) -> Any:
        """Arrow types of the columns, where the format has types; else None."""
        ...

    @property
    def read(self) -> float:
        """The share of the file that has been read so far, 0 to 1; 0 if it is not known."""
        ...

    def rows(self, after: int = 0) -> Iterator[Row]:
        """The rows whose number is larger than `after`, in order.

        Raises:
            SourceError: the file is damaged from here on.
            OSError: it cannot be read.
        """
        ...


def open_source(path: Path) -> Source:
    """The reader for a file, by its name.

    Raises:
        SourceError: nothing reads files of this name, or a column has a type that JSON cannot carry.
        OSError: it cannot be read.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix in _JSON_LINES:
        return JsonLines(path)
    if suffix == ".parquet":
        return Parquet(path)
    if suffix in _DATASETS:
        return Streamed(path, _DATASETS[suffix], {"sep": "\t"} if suffix == ".tsv" else {})
    known = ", ".join(("*.jsonl", "*.jsonl.gz", "*.ndjson", "*.parquet", "*.json", "*.csv", "*.tsv", "*.arrow"))
    raise SourceError(f"{path}: not the name of a file of samples; those are {known}")


class JsonLines:
    """JSON lines, gzipped or not, whatever the name says."""

    unit: Literal["line"] = "line"
    schema = None

    def __init__(self, path: Path) -> None:
        """Open the file once, to see that it is there.

        Raises:
            OSError: it is not.
        """
        self.path = path
        with path.open("rb") as file:
            self._zipped = file.read(2) == _GZIP
        self._size = max(path.stat().st_size, 1)
        self.read = 0.0

    def rows(self, after: int = 0) -> Iterator[Row]:
        with self.path.open("rb") as file:
            lines = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if self._zipped else file
            number, at = 0, 0
            try:
                for number, line in enumerate(lines, start=1):
                    start, at = at, at + len(line)
                    if number <= after:
                        continue
                    text = line.removeprefix(_BOM) if number == 1 else line
                    start += len(line) - len(text)
                    self.read = (file.tell() if self._zipped else at) / self._size
                    text = text.rstrip(b"\r\n")
                    if text.strip():
                        yield Row(number, text, None if self._zipped else start)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise SourceError(f"{self.path}: a damaged gzip file after line {number}: {reason(error)}") from error


class Parquet:
    """Parquet, a batch of rows at a time. Dates, times and decimals become text, as ISO 8601 writes them."""

    unit: Literal["row"] = "row"

    def __init__(self, path: Path) -> None:
        """Read what the columns are.

        Raises:
            SourceError: not Parquet, or a column's type has no form in JSON.
            OSError: it cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
        try:
            self.file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{path}: a damaged Parquet file, or none: {reason(error)}") from error
        self.read = 0.0
        self.schema = self.file.schema_arrow
        if unfit := [f"{field.name} ({field.type})" for field in self.schema if not _fits_json(field.type)]:
            raise SourceError(f"{path}: rows are handed on as JSON, which cannot hold the columns {', '.join(unfit)}")

    def rows(self, after: int = 0) -> Iterator[Row]:
        number = 0
        total = max(self.file.metadata.num_rows, 1)
        for group in range(self.file.num_row_groups):
            rows = self.file.metadata.row_group(group).num_rows
            if number + rows <= after:
                number += rows
                continue
            for records in self._records(group, number):
                for record in records:
                    number += 1
                    if number > after:
                        self.read = number / total
                        yield Row(number, to_json(record))

    def _records(self, group: int, before: int) -> Iterator[list[dict[str, Any]]]:
        import pyarrow as pa

        read = before
        try:
            for batch in self.file.iter_batches(_BATCH, row_groups=[group]):
                records = batch.to_pylist()
                yield records
                read += len(records)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{self.path}: a damaged Parquet file after row {read}: {reason(error)}") from error


class Streamed:
    """Anything that `datasets` streams. A JSON array is one value: its reader holds all of it."""

    unit: Literal["row"] = "row"
    schema = None
    read = 0.0

    def __init__(self, path: Path, kind: str, how: dict[str, Any]) -> None:
        """Nothing is read yet."""
        self.path, self._kind, self._how = path, kind, how
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")

    def rows(self, after: int = 0) -> Iterator[Row]:
        from datasets import load_dataset
        from datasets.exceptions import DatasetGenerationError

        try:
            stream = load_dataset(self._kind, data_files=str(self.path), split="train", streaming=True, **self._how)
            for number, record in enumerate(stream, start=1):
                if number > after:
                    yield Row(number, to_json(record))
        except (DatasetGenerationError, ValueError, TypeError) as error:
            raise SourceError(f"{self.path}: `datasets` cannot read it as {self._kind}: {reason(error)}") from error


def to_json(record: dict[str, Any]) -> bytes:
    """A row as one line of JSON, without its end."""
    try:
        return _JSON.encode(record).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only its escape can spell
        return json.dumps(record, default=_plain).encode()


def _plain(value: object) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_JSON = json.JSONEncoder(ensure_ascii=False, default=_plain)


def _fits_json(kind: Any) -> bool:
    import pyarrow.types as of

    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind) or of.is_dictionary(kind):
        return _fits_json(kind.value_type)
    if of.is_struct(kind):
        return all(_fits_json(field.type) for field in kind)
    tests = (of.is_null, of.is_boolean, of.is_integer, of.is_floating, of.is_string, of.is_large_string, of.is_temporal)
    return (any(test(kind) for test in tests) or of.is_decimal(kind)) and not of.is_duration(kind)
