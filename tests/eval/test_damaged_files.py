"""Damaged files of every format are named, with what is wrong and where, by all that read them."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from eval.benchmarks.catalogue import BENCHMARKS
from eval.benchmarks.schema import BenchmarkError
from eval.benchmarks.source import local_rows
from eval.rerank.samples import ColumnError, check_columns
from eval.rerank.sources import SourceError, open_source

ROWS = [{"question": f"Q{number}?", "trace": f"So {number}."} for number in range(2000)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def _parquet() -> bytes:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=500)
    return bytes(sink.getvalue())


def _overwritten(data: bytes, start: int, count: int) -> bytes:
    return data[:start] + b"\xff" * count + data[start + count :]


DAMAGED: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "no Parquet": ("f.parquet", lambda: b"nonsense", r"a damaged Parquet file, or none: .*magic bytes"),
    "cut Parquet": ("f.parquet", lambda: _parquet()[:-20], r"a damaged Parquet file, or none: .*magic bytes"),
    "empty Parquet": ("f.parquet", lambda: b"", r"a damaged Parquet file, or none: .*0 bytes"),
    "overwritten Parquet": ("f.parquet", lambda: _overwritten(_parquet(), 10, 300), r"a damaged Parquet file.*: \w+"),
    "cut gzip": ("f.jsonl.gz", lambda: gzip.compress(LINES)[:-30], r"a damaged gzip file.*: compressed file ended"),
    "overwritten gzip": (
        "f.jsonl.gz", lambda: _overwritten(gzip.compress(LINES), 12, 50), r"a damaged gzip file.*: \w+",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "data", "why"), DAMAGED.values(), ids=DAMAGED)
def test_samples_to_rerank(tmp_path: Path, name: str, data: Callable[[], bytes], why: str) -> None:
    path = tmp_path / name
    path.write_bytes(data())
    with pytest.raises(SourceError) as caught:
        list(open_source(path).rows())
    assert re.fullmatch(rf"{re.escape(str(path))}: {why}.*", str(caught.value))


@pytest.mark.parametrize(("name", "data", "why"), DAMAGED.values(), ids=DAMAGED)
def test_a_benchmark_to_fetch(tmp_path: Path, name: str, data: Callable[[], bytes], why: str) -> None:
    path = tmp_path / name
    path.write_bytes(data())
    with pytest.raises(BenchmarkError) as caught:
        list(local_rows(BENCHMARKS["medqa"], path))
    assert re.fullmatch(rf"{re.escape(str(path))}: {why}.*", str(caught.value))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"question": 1}\n\n{oops\n', ", line 3: not JSON: expecting property name"),
        (b'{"question": 1}\n"text"\n', ", row 2: expected an object, found str"),
    ],
)
def test_a_line_of_a_benchmark_is_named(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(data)
    with pytest.raises(BenchmarkError, match=re.escape(f"{path}{why}")):
        list(local_rows(BENCHMARKS["medqa"], path))


@pytest.mark.parametrize("name", ["f.parquet", "f.jsonl", "f.jsonl.gz", "f.csv"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(BenchmarkError, match=rf"{name}: no such file"):
        list(local_rows(BENCHMARKS["medqa"], tmp_path / name))


def test_a_file_without_one_row_of_columns_says_why(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"plain text\nmore\n")
    with pytest.raises(ColumnError, match=r"f\.jsonl, line 1: not JSON .*; none of the first 2 rows"):
        check_columns(open_source(path), {"--question-column": "question"})
