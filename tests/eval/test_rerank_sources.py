import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from eval.rerank.sources import JsonLines, Row, SourceError, open_source

LINES = [b'{"a": 1.0e3}', b'{"a": "\xc3\xa9\xe2\x80\xa8"}', b"not json"]


def rows(path: Path, after: int = 0) -> list[Row]:
    return list(open_source(path).rows(after))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_json_lines_keep_their_bytes_and_their_numbers(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + LINES[0] + end + end + LINES[1] + end + LINES[2])  # without an end of the last
    found = rows(path)
    assert [row.text for row in found] == LINES
    assert [row.number for row in found] == [1, 3, 4]
    data = path.read_bytes()
    assert [data[row.at : row.at + len(row.text)] for row in found if row.at is not None] == LINES
    assert rows(path, after=1) == found[1:]
    assert rows(path, after=4) == []


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(gzip.compress(b"\n".join(LINES)))
    assert [(row.number, row.text, row.at) for row in rows(path)] == [
        (n, t, None) for n, t in enumerate(LINES, start=1)
    ]


def test_what_is_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}\n" * 10))
    source = JsonLines(path)
    assert source.read == 0
    list(source.rows())
    assert source.read == 1


def test_a_gzip_file_that_breaks_off_gives_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    whole = gzip.compress(b"".join(b'{"n": %d}\n' % (n * 7919 % 1000) for n in range(5000)))
    path.write_bytes(whole[: len(whole) // 2])
    found = list[Row]()
    with pytest.raises(SourceError, match=r"damaged gzip file after line (\d+)") as caught:
        found.extend(open_source(path).rows())
    assert found
    assert f"after line {found[-1].number}:" in str(caught.value)


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = [{"q": f"é{n}", "o": {"A": "x", "B": None}, "s": ["a", "b"], "f": 0.1 * n} for n in range(700)]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist(records), path, row_group_size=300)
    found = rows(path)
    assert [json.loads(row.text) for row in found] == records
    assert [row.number for row in found] == list(range(1, 701))
    for after in (299, 300, 450, 700):
        assert rows(path, after) == found[after:]


def write_column(path: Path, values: list[Any], kind: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"column": pa.array(values, kind)}), path)


def test_parquet_times_become_text(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "x.parquet"
    kind = pa.struct([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(5, 2))])
    at = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
    write_column(path, [{"day": date(2024, 2, 3), "at": at, "d": Decimal("1.50")}], kind)
    (row,) = rows(path)
    assert json.loads(row.text)["column"] == {"day": "2024-02-03", "at": "2024-02-03T04:05:06+00:00", "d": "1.50"}


def test_parquet_that_json_cannot_hold_is_refused_at_once(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "x.parquet"
    write_column(path, [[b"\xff"]], pa.list_(pa.binary()))
    with pytest.raises(SourceError, match=r"cannot hold the columns column \(list<.*binary>\)"):
        open_source(path)
    path.write_bytes(b"PAR1 or not")
    with pytest.raises(SourceError, match=r"x\.parquet"):
        open_source(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", 'question,n\nWhy?,1\n"a,\nb",2\n'),
        ("x.tsv", 'question\tn\nWhy?\t1\n"a,\nb"\t2\n'),
        ("x.json", '[{"question": "Why?", "n": 1},\n {"question": "a,\\nb", "n": 2}]'),
    ],
)
def test_other_tables_come_through_datasets(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    found = rows(path)
    assert [json.loads(row.text) for row in found] == [{"question": "Why?", "n": 1}, {"question": "a,\nb", "n": 2}]
    assert [row.number for row in found] == [1, 2]
    assert rows(path, after=1) == found[1:]


def test_names_that_say_nothing_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"x\.txt: not the name of a file of samples; those are \*\.jsonl"):
        open_source(tmp_path / "x.txt")
    for name in ("x.jsonl", "x.parquet", "x.csv"):
        with pytest.raises(FileNotFoundError):
            open_source(tmp_path / name)
