import gzip
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rerank_fakes import read_lines, run, sample, write_lines

from eval.rerank.writers import WriteError, check_format, write

RECORDS = [{"a": 1, "b": {"x": "é"}}, {"a": None, "c": [1, 2]}, {"b": {"y": 0.5}, "a": 3}]


def lines() -> Iterator[bytes]:
    return (json.dumps(record).encode() for record in RECORDS)


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    assert write(lines, tmp_path / "part", name) == 3
    data = (tmp_path / "part").read_bytes()
    plain = gzip.decompress(data) if name.endswith(".gz") else data
    assert plain == b"".join(line + b"\n" for line in lines())


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.parquet"])
def test_the_same_lines_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    for part in ("one", "two"):
        write(lines, tmp_path / part, name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_parquet_has_all_columns_in_the_order_of_their_first_rows(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert write(lines, tmp_path / "part", "x.parquet") == 3
    table = pq.read_table(tmp_path / "part")
    assert table.column_names == ["a", "b", "c"]
    assert table.to_pylist()[2] == {"a": 3, "b": {"x": None, "y": 0.5}, "c": None}


def test_parquet_of_nothing(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert write(lambda: iter(()), tmp_path / "part", "x.parquet") == 0
    assert pq.read_table(tmp_path / "part").num_rows == 0


def test_values_of_several_types_do_not_fit_parquet(tmp_path: Path) -> None:
    def mixed() -> Iterator[bytes]:
        return iter((b'{"a": 1}', b'{"a": "one"}'))

    with pytest.raises(WriteError, match=r"one type for each column: .*Write \*\.jsonl instead"):
        write(mixed, tmp_path / "part", "x.parquet")


@pytest.mark.parametrize("value", [2**70, {"b": [2**70]}])
def test_integers_beyond_64_bits_do_not_fit_parquet(tmp_path: Path, value: object) -> None:
    with pytest.raises(WriteError, match=r"^a: an integer of more than 64 bits.*Write \*\.jsonl instead"):
        write(lambda: iter((json.dumps({"a": value}).encode(),)), tmp_path / "part", "x.parquet")


def test_names_that_say_nothing(tmp_path: Path) -> None:
    check_format(Path("x.jsonl.gz"))
    with pytest.raises(WriteError, match=r"x\.csv: name the output \*\.jsonl, \*\.jsonl\.gz, \*\.parquet"):
        check_format(Path("x.csv"))


def test_parquet_to_parquet_keeps_types(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields: list[tuple[str, Any]] = [
        ("question", pa.string()), ("trace", pa.large_string()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()),
        ("price", pa.decimal128(6, 2)), ("small", pa.int8()), ("rough", pa.float32()), ("tags", pa.list_(pa.string())),
        ("meta", pa.struct([("a", pa.int16()), ("b", pa.string())])), ("kind", pa.dictionary(pa.int8(), pa.string())),
    ]  # fmt: skip
    record = {
        "question": "q", "trace": "0.5", "at": datetime(2024, 2, 3, 4, 5, 6, 7, tzinfo=UTC), "day": date(2024, 2, 3),
        "price": Decimal("12.50"), "small": 3, "rough": 0.25, "tags": ["x", "é"], "meta": {"a": 1, "b": None}, "kind": "k",
    }  # fmt: skip
    empty = {name: None for name, _ in fields} | {"question": "q", "trace": "0.75"}
    schema = pa.schema(fields)
    pq.write_table(pa.Table.from_pylist([record, empty], schema), tmp_path / "in.parquet")
    run(tmp_path / "in.parquet", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert [found.schema.field(name).type for name, _ in fields] == [kind for _, kind in fields]
    assert found.select([name for name, _ in fields]).to_pylist() == [empty, record]
    assert [row["rank"] for row in found["medverify"].to_pylist()] == [1, 2]


@pytest.mark.parametrize("first", ["in.jsonl", "in.jsonl.gz"])
@pytest.mark.parametrize("second", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_any_format_from_any_other(tmp_path: Path, first: str, second: str) -> None:
    rows = [sample("a", "0.25", n=1), sample("b", "unclear", n=2), sample("a", "0.5", n=3)]
    run(write_lines(tmp_path / first, rows), tmp_path / second)
    if second.endswith(".parquet"):
        import pyarrow.parquet as pq

        found = pq.read_table(tmp_path / second).to_pylist()
    else:
        found = read_lines(tmp_path / second)
    assert [row["n"] for row in found] == [3, 1, 2]
    assert [row["medverify"]["p_correct"] for row in found] == [0.5, 0.25, None]
