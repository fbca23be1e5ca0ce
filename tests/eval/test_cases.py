import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.cases import BadLine, read_cases
from verifier.types import Case

WARFARIN = {"id": "w", "question": "What does warfarin inhibit?", "options": {"A": "VKOR"}, "trace": ["It …", "A."]}
DIGOXIN = {"id": "d", "question": "What does digoxin inhibit?", "trace": "The sodium pump."}
BOTH = [Case.model_validate(WARFARIN), Case.model_validate(DIGOXIN)]


def line(record: object) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode()


def case_line(id: str = "x", **fields: object) -> bytes:
    return line({"id": id, "question": "q", "trace": "t", **fields})


def read(data: bytes) -> list[Case | BadLine]:
    return list(read_cases(io.BytesIO(data)))


def bad(data: bytes) -> BadLine:
    (found,) = read(data)
    assert isinstance(found, BadLine)
    return found


JSONL = line(WARFARIN) + b"\n" + line(DIGOXIN) + b"\n"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(JSONL, id="jsonl"),
        pytest.param(JSONL.rstrip(b"\n"), id="no newline at the end"),
        pytest.param(JSONL.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(b"\n  \n" + JSONL.replace(b"\n", b"\n\n\t\n"), id="blank lines"),
        pytest.param(b"\xef\xbb\xbf" + JSONL, id="bom"),
        pytest.param(gzip.compress(JSONL, mtime=0), id="gzip"),
        pytest.param(gzip.compress(JSONL[:60], mtime=0) + gzip.compress(JSONL[60:], mtime=0), id="gzip in two members"),
        pytest.param(gzip.compress(b"\xef\xbb\xbf" + JSONL, mtime=0), id="gzip with a bom"),
        pytest.param(line([WARFARIN, DIGOXIN]), id="array"),
        pytest.param(b"\xef\xbb\xbf\n" + json.dumps([WARFARIN, DIGOXIN], indent=2).encode(), id="array over lines"),
        pytest.param(gzip.compress(line([WARFARIN, DIGOXIN]), mtime=0), id="gzip of an array"),
    ],
)
def test_every_layout_gives_the_same_cases(data: bytes) -> None:
    assert read(data) == BOTH


@pytest.mark.parametrize("indent", [None, 2])
def test_one_case_alone_on_a_line_or_over_several(indent: int | None) -> None:
    assert read(json.dumps(WARFARIN, indent=indent).encode()) == BOTH[:1]


def test_a_path_is_read(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_bytes(JSONL)
    (tmp_path / "cases.jsonl.gz").write_bytes(gzip.compress(JSONL, mtime=0))
    assert list(read_cases(tmp_path / "cases.jsonl")) == list(read_cases(tmp_path / "cases.jsonl.gz")) == BOTH


def test_what_unpacks_to_more_than_memory_may_hold_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.cases._MOST_UNPACKED", 2 * 2**20)
    assert read(gzip.compress(JSONL, mtime=0)) == BOTH
    packed = gzip.compress(bytes(64 * 2**20), mtime=0)
    tracemalloc.start()
    [bad] = read(packed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(bad) == f"line 1: unpacks to more than {2 * 2**20} bytes; split it into several files"
    assert peak < 32 * 2**20


def test_a_missing_file_is_for_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_cases(tmp_path / "absent.jsonl"))


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf", b"[]", gzip.compress(b"", mtime=0)])
def test_nothing_gives_nothing(data: bytes) -> None:
    assert read(data) == []


@pytest.mark.parametrize(
    ("record", "problems"),
    [
        ({"question": "q", "trace": "t"}, ["id: Field required"]),
        ({"id": "x", "trace": "t"}, ["question: Field required"]),
        ({"id": "x", "question": "q"}, ["trace: Field required"]),
        ({"id": "x", "qestion": "q", "trace": "t"}, ["question: Field required", "qestion: Extra inputs"]),
        ({"id": "x", "question": "q", "trace": "t", "label": 1}, ["label: Extra inputs"]),
        ({"id": 7, "question": "q", "trace": "t"}, ["id: Input should be a valid string"]),
        ({"id": "", "question": "q", "trace": "t"}, ["id: String should have at least 1 character"]),
        ({"id": "x" * 513, "question": "q", "trace": "t"}, ["id: String should have at most 512 characters"]),
        ({"id": "x", "question": ["q"], "trace": "t"}, ["question: Input should be a valid dict"]),
        ({"id": "x", "question": " \n", "trace": "t"}, ["question: String should have at least 1 character"]),
        ({"id": "x", "question": "q", "trace": []}, ["trace: List should have at least 1 item"]),
        ({"id": "x", "question": "q", "trace": ["s", 2]}, ["trace.1: Input should be a valid string"]),
        ({"id": "x", "question": "q", "trace": None}, ["trace: Input should be a valid dict"]),
        ({"id": "x", "question": "q", "trace": {"text": "t", "steps": ["t"]}}, ["trace: Value error, give either"]),
        ({"id": "x", "question": "q", "options": {"A": ""}, "trace": "t"}, ["options.A: String should"]),
        ({"id": "x", "question": "q", "options": ["VKOR"], "trace": "t"}, ["options: Input should be"]),
        ({"id": "x", "question": "q", "options": {"none of these": "n"}, "trace": "t"}, ["none of these"]),
        ({"id": "\ud800", "question": "q", "trace": "t"}, ["id: Input should be a valid string"]),
        (["id", "question"], ["expected an object", "found list"]),
        ("text", ["found str"]),
        (None, ["found NoneType"]),
        (1.5, ["found float"]),
    ],
)
def test_a_line_that_is_no_case_says_which_field_and_why(record: object, problems: list[str]) -> None:
    before, found, after = read(case_line("a") + b"\n" + json.dumps(record).encode() + b"\n" + case_line("b"))
    assert isinstance(before, Case)
    assert isinstance(after, Case)
    assert isinstance(found, BadLine)
    assert found.line == 2
    assert str(found).startswith("line 2: ")
    for problem in problems:
        assert problem in str(found)


@pytest.mark.parametrize(
    "junk",
    [
        b"{",
        b'{"id": "x", "question": "q", "trace": "t"',
        b"{'id': 'x'}",
        b"id,question,trace",
        b"\x00",
        case_line("x").replace(b"t", b"\x00"),
        b"\xff\xfe\xfa",
        case_line("x").replace(b'"q"', b'"\xff"'),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"id": "x", "question": ' + b"[" * 500 + b"]" * 500 + b"}",
        b"[1, 2",
        b"[]",
        b"9" * 10_000,
        b"NaN",
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_junk_spoils_its_own_line_only(junk: bytes, position: int) -> None:
    lines = [case_line("a"), case_line("b")]
    lines.insert(position, junk)
    found = read(b"\n".join(lines))
    assert [record.id for record in found if isinstance(record, Case)] == ["a", "b"]
    assert [record.line for record in found if isinstance(record, BadLine)] == [position + 1]


def test_the_form_that_is_expected_is_shown() -> None:
    assert '"question": "…"' in str(bad(b"warfarin"))


@pytest.mark.parametrize("data", [b"[1, 2", b'[{"id": "x"}', b"[" * 100_000, b"[\n1,\n2,\n"])
def test_a_broken_array_is_one_problem(data: bytes) -> None:
    assert "not a JSON array" in str(bad(data))


def test_elements_of_an_array_are_judged_one_by_one() -> None:
    first, second, third = read(line([WARFARIN, 5, DIGOXIN]))
    assert [first, third] == BOTH
    assert isinstance(second, BadLine)
    assert str(second).startswith("element 2: ")


def test_an_id_used_twice_in_an_array_names_the_element() -> None:
    _, second = read(line([WARFARIN, WARFARIN]))
    assert "was used in element 1 already" in str(second)


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(JSONL, mtime=0)[:-9],
        gzip.compress(JSONL, mtime=0)[:12],
        b"\x1f\x8b",
        b"\x1f\x8b" + b"a" * 50,
        gzip.compress(JSONL, mtime=0)[:-8] + b"\x00" * 8,
        gzip.compress(JSONL, mtime=0).replace(gzip.compress(JSONL, mtime=0)[20:30], b"\x00" * 10),
    ],
)
def test_a_damaged_gzip_file_is_a_problem_and_no_crash(data: bytes) -> None:
    assert "damaged gzip" in str(bad(data))


def test_an_id_counts_once() -> None:
    first, second, third, fourth = read(
        b"\n".join([case_line("x", trace="1"), case_line("y"), case_line("x", trace="2"), case_line("x")])
    )
    assert isinstance(first, Case)
    assert isinstance(second, Case)
    assert isinstance(third, BadLine)
    assert isinstance(fourth, BadLine)
    assert str(third) == "line 3: id: 'x' was used in line 1 already; ids must be unique"


def test_a_bad_line_does_not_use_up_its_id() -> None:
    first, second = read(case_line("x", trace="") + b"\n" + case_line("x"))
    assert isinstance(first, BadLine)
    assert isinstance(second, Case)


def test_a_huge_line_is_refused_by_its_field_and_a_large_one_read() -> None:
    large, huge = read(case_line("a", trace="é" * 200_000) + b"\n" + case_line("b", trace="é" * 5_000_000))
    assert isinstance(large, Case)
    assert isinstance(huge, BadLine)
    assert huge.problems == ("trace: String should have at most 200000 characters",)


_FRAGMENTS = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\n", b"\r\n", b" ", b"\\ud800", b"\\u0000", b"\x00", b"\xff", b"null", b"1e999",
    b'"id"', b'"question"', b'"options"', b'"trace"', case_line("a"), case_line("b"), b"\xef\xbb\xbf", b"\x1f\x8b",
    b'{"\\ud800": 1}',
)  # fmt: skip
soup = st.lists(st.one_of(st.sampled_from(_FRAGMENTS), st.binary(max_size=4)), max_size=12).map(b"".join)


@given(st.one_of(st.binary(), soup, st.binary().map(lambda data: b"\x1f\x8b" + data), soup.map(gzip.compress)))
def test_no_bytes_crash_it(data: bytes) -> None:
    records = read(data)
    good = [record.id for record in records if isinstance(record, Case)]
    assert len(good) == len(set(good))
    for record in records:
        if isinstance(record, BadLine):
            assert record.problems
            str(record).encode(errors="strict")  # can be shown on any terminal


_words = st.text(max_size=4)
_json = st.one_of(
    st.none() | st.booleans() | st.floats() | _words,
    st.lists(st.none() | _words, max_size=3) | st.dictionaries(_words, st.integers() | _words, max_size=3),
)
_fields = st.sampled_from(["id", "question", "options", "trace", "text", "steps", "extra"])


@given(st.lists(st.dictionaries(_fields, _json, max_size=5), min_size=1, max_size=3))
def test_no_values_crash_it(records: list[object]) -> None:
    found = read(b"\n".join(json.dumps(record).encode() for record in records))
    assert len(found) == len(records)
