"""Lines of JSON as a file: JSON lines, gzipped or not, or Parquet. The same lines give the same bytes."""

import gzip
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

Lines = Callable[[], Iterator[bytes]]

_BATCH_ROWS, _BATCH_BYTES = 10_000, 16_000_000  # of a group of rows in Parquet
KNOWN = (".jsonl", ".jsonl.gz", ".parquet")


class WriteError(ValueError):
    """What is written does not fit the format; the message names the fix."""


def check_format(path: Path) -> None:
    """Refuse a file name that says nothing about the format.

    Raises:
        WriteError: it does not.
    """
    if not path.name.endswith(KNOWN):
        raise WriteError(f"{path}: name the output *{', *'.join(KNOWN)}")


def write(lines: Lines, path: Path, kind: str, schema: Any = None) -> int:
    """Write all lines and return how many there are.

    Args:
        lines: gives them, from the first, as often as it is called: Parquet needs to know the types first.
        path: written to.
        kind: name of the file that it will become, whose ending is the format.
        schema: Arrow types of columns that are known; the others follow from the values.

    Raises:
        WriteError: a column has values of several types, which Parquet cannot hold.
    """
    if kind.endswith(".parquet"):
        return _write_parquet(lines, path, schema)
    count = 0
    with path.open("wb") as file:
        out: Any = file
        if kind.endswith(".gz"):
            out = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0)
        for line in lines():
            out.write(line + b"\n")
            count += 1
        if out is not file:
            out.close()
    return count


def _write_parquet(lines: Lines, path: Path, known: Any) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pa.schema([])
        for records in _batches(lines()):
            names = dict.fromkeys(name for record in records for name in record)
            found = pa.schema([(name, _kind([record.get(name) for record in records], name)) for name in names])
            schema = pa.unify_schemas([schema, found], promote_options="permissive")
        target = pa.schema([
            known.field(field.name) if known is not None and field.name in known.names else field for field in schema
        ])  # fmt: skip
        read = pa.schema([(field.name, _as_read(field.type)) for field in target])
        count = 0
        with pq.ParquetWriter(path, target) as writer:
            for records in _batches(lines()):
                writer.write_table(pa.Table.from_pylist(records, read).cast(target))
                count += len(records)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise WriteError(f"Parquet wants one type for each column: {error}. Write *.jsonl instead") from error
    return count


def _batches(lines: Iterator[bytes]) -> Iterator[list[dict[str, Any]]]:
    while True:
        records, size = list[dict[str, Any]](), 0
        for line in islice(lines, _BATCH_ROWS):
            records.append(json.loads(line))
            size += len(line)
            if size > _BATCH_BYTES:
                break
        if not records:
            return
        yield records


def _kind(values: list[Any], name: str) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values).type
    except OverflowError as error:
        raise WriteError(
            f"{name}: an integer of more than 64 bits, for which Parquet has no type. Write *.jsonl instead"
        ) from error


def _as_read(kind: Any) -> Any:
    """The type that a value has after it was JSON."""
    import pyarrow as pa
    import pyarrow.types as of

    if of.is_temporal(kind) or of.is_decimal(kind) or of.is_dictionary(kind):
        return pa.string()
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        return pa.list_(_as_read(kind.value_type))
    if of.is_struct(kind):
        return pa.struct([(field.name, _as_read(field.type)) for field in kind])
    return kind
