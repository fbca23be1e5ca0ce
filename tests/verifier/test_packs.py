import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verifier.packs import FAILED, PackError, read_pack, read_questions, write_rows

QUESTIONS: list[Any] = [
    {
        "id": "q1",
        "question": "Which drug?",
        "context": None,
        "options": {"A": "Warfarin", "B": "Heparin"},
        "answer": "A",
    },
    {"id": "q2", "question": "Does it work?", "context": "An abstract.", "options": None},
]
TRACES: list[Any] = [
    {"qid": "q1", "trace_id": "q1#1", "reasoning": "So A.", "trace_label": 1, "generator": "m"},
    {"qid": "q2", "trace_id": "q2#1", "reasoning": "So yes.", "trace_label": None},
    {"qid": "q1", "trace_id": "q1#2", "reasoning": "So B.", "trace_label": 0},
    {"qid": "q1", "trace_id": "q1#3", "reasoning": "So A again.", "trace_label": 1},
]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(questions: list[Any] = QUESTIONS, traces: list[Any] = TRACES, gz: bool = False) -> Path:
        for part, rows in (("questions", questions), ("traces", traces)):
            data = b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
            path = tmp_path / f"pack.{part}.jsonl{'.gz' * gz}"
            path.write_bytes(gzip.compress(data) if gz else data)
        return tmp_path / "pack"

    return _write


@pytest.mark.parametrize("gz", [False, True])
def test_traces_meet_their_questions(write: Write, gz: bool) -> None:
    first, second, third, fourth = read_pack(write(gz=gz))
    assert [labelled.case.id for labelled in (first, second, third, fourth)] == ["q1#1", "q2#1", "q1#2", "q1#3"]
    assert [labelled.label for labelled in (first, second, third, fourth)] == [1, None, 0, 1]
    assert first.question_id == third.question_id == "q1"
    assert first.case.question.options == {"A": "Warfarin", "B": "Heparin"}
    assert first.case.trace.text == "So A."
    assert second.case.question.text == "An abstract.\n\nDoes it work?"


def test_what_the_pack_knows_of_a_trace_comes_along(write: Write) -> None:
    questions = [*QUESTIONS, {"id": "q3", "question": "So?", "contexts": ["First.", "Second."], "answer": "B"}]
    traces = [
        {**TRACES[0], "pred": "A", "gold": "A"},
        {"qid": "q3", "trace_id": "q3#1", "reasoning": "?", "trace_label": None, "generator": None, "pred": None},
    ]
    first, second = read_pack(write(questions, traces))
    assert (first.generator, first.answer, first.gold) == ("m", "A", "A")
    assert (second.generator, second.answer, second.gold) == ("", None, "B")
    assert second.case.question.text == "First.\n\nSecond.\n\nSo?"


def test_the_label_is_no_part_of_the_case(write: Write) -> None:
    """The judge must not see what it is measured against."""
    first = read_pack(write())[0].case.model_dump_json()
    assert "label" not in first
    assert "answer" not in first


@pytest.mark.parametrize(("count", "ids"), [(1, ["q1#1", "q2#1"]), (2, ["q1#1", "q2#1", "q1#2"]), (0, [])])
def test_the_first_traces_of_each_question(write: Write, count: int, ids: list[str]) -> None:
    assert [labelled.case.id for labelled in read_pack(write(), count)] == ids


@pytest.mark.parametrize("part", ["questions", "traces"])
def test_a_missing_file_is_named(write: Write, part: str) -> None:
    prefix = write()
    Path(f"{prefix}.{part}.jsonl").unlink()
    with pytest.raises(PackError, match=rf"no such file: .*pack\.{part}\.jsonl or \.jsonl\.gz"):
        read_pack(prefix)


@pytest.mark.parametrize("field", ["qid", "trace_id", "reasoning", "trace_label"])
def test_a_missing_field_is_named_with_file_and_line(write: Write, field: str) -> None:
    rows = [*TRACES[:2], {name: value for name, value in TRACES[2].items() if name != field}]
    with pytest.raises(PackError, match=rf"pack\.traces\.jsonl, line 3: {field}: Field required"):
        read_pack(write(traces=rows))


@pytest.mark.parametrize("field", ["id", "question"])
def test_a_question_needs_its_fields(write: Write, field: str) -> None:
    rows = [{name: value for name, value in QUESTIONS[0].items() if name != field}]
    with pytest.raises(PackError, match=rf"pack\.questions\.jsonl, line 1: {field}: Field required"):
        read_pack(write(questions=rows))


@pytest.mark.parametrize(
    "row",
    [
        {**TRACES[0], "trace_label": 2},
        {**TRACES[0], "trace_label": "yes"},
        {**TRACES[0], "trace_label": -1},
        {**TRACES[0], "qid": ["q1"]},
        {**TRACES[0], "reasoning": ""},
        {**TRACES[0], "reasoning": None},
        "qid trace_id reasoning trace_label",
        ["qid", "trace_id", "reasoning", "trace_label"],
        7,
        None,
        b"{",
        b"\xef\xbb\xbf{}",  # a byte order mark that is not at the beginning
        b"\xff\xfe",
        b"[" * 5000,
    ],
)
def test_a_row_that_is_none_is_named_with_file_and_line(write: Write, row: object) -> None:
    with pytest.raises(PackError, match=r"pack\.traces\.jsonl, line 2: "):
        read_pack(write(traces=[TRACES[0], row]))


@pytest.mark.parametrize("gz", [False, True])
def test_a_byte_order_mark_and_blank_lines_are_passed_over(write: Write, gz: bool) -> None:
    mark = b"\xef\xbb\xbf"
    questions = [mark + json.dumps(QUESTIONS[0]).encode(), b"", b" \r", json.dumps(QUESTIONS[1]).encode(), b""]
    traces = [mark, *TRACES, b""]
    assert read_pack(write(questions, traces, gz=gz)) == read_pack(write())


@pytest.mark.parametrize("blank", [[], [b"", b""]])
@pytest.mark.parametrize("answer", ["C", "a", "Warfarin"])
def test_an_answer_that_is_no_option_is_named(write: Write, answer: str, blank: list[bytes]) -> None:
    line = 4 + len(blank)
    why = rf"pack\.traces\.jsonl, line {line}, field gold: '{answer}' is no option of question 'q1'; it has A, B"
    with pytest.raises(PackError, match=why):
        read_pack(write(traces=[*TRACES[:3], *blank, {**TRACES[3], "gold": answer}]))


@pytest.mark.parametrize("answer", ["b", "(B)", "Ｂ", "heparin"])
def test_an_answer_that_names_an_option_otherwise_than_by_its_key_is_named(write: Write, answer: str) -> None:
    why = r"line 3, field pred: .* names option 'B' of question 'q1': write that"
    with pytest.raises(PackError, match=why):
        read_pack(write(traces=[*TRACES[:2], {**TRACES[2], "pred": answer}]))


def test_a_trace_may_end_with_a_letter_that_is_no_option(write: Write) -> None:
    """Real packs have them: what a generator wrote was read as E, and there was no E."""
    assert read_pack(write(traces=[{**TRACES[2], "pred": "E"}]))[0].answer == "E"


def test_a_right_answer_that_is_no_option_is_named(write: Write) -> None:
    told = r"pack\.questions\.jsonl, line 2, field answer: 'D' is no option of question 'q3'; it has A, B"
    with pytest.raises(PackError, match=told):
        read_questions(write([QUESTIONS[1], {**QUESTIONS[0], "id": "q3", "answer": "D"}]))


def test_an_open_question_has_answers_in_words(write: Write) -> None:
    (second,) = [
        case
        for case in read_pack(write(traces=[{**TRACES[1], "pred": "yes", "gold": "no"}]))
        if case.question_id == "q2"
    ]
    assert (second.answer, second.gold) == ("yes", "no")


def test_two_questions_with_one_id_are_named(write: Write) -> None:
    with pytest.raises(PackError, match=r"line 3, field id: two questions have the id 'q1'"):
        read_pack(write([*QUESTIONS, QUESTIONS[0]]))


def test_two_traces_with_one_id_are_named_before_anything_is_judged(write: Write) -> None:
    with pytest.raises(PackError, match=r"line 5, field trace_id: two traces have the id 'q1#1'"):
        read_pack(write(traces=[*TRACES, TRACES[0]]))


def test_a_question_with_two_right_answers_is_named(write: Write) -> None:
    with pytest.raises(PackError, match=r"line 5, field gold: question 'q1' has two right answers, 'A' and 'B'"):
        read_pack(write(traces=[*TRACES, {**TRACES[0], "trace_id": "q1#9", "gold": "B"}]))


def test_a_trace_that_could_not_be_made_is_left_out(write: Write) -> None:
    failed = {**TRACES[1], "trace_id": "x", "reasoning": "[nothing]", "finish": FAILED}
    made = [{**row, "finish": "end"} for row in TRACES]
    assert [labelled.case.id for labelled in read_pack(write(traces=[failed, *made]))] == [
        row["trace_id"] for row in TRACES
    ]


@pytest.mark.parametrize("end", [".jsonl", ".jsonl.gz"])
def test_written_rows_are_read_back_whole_and_written_the_same_again(tmp_path: Path, end: str) -> None:
    rows = [{**row, "more": ["\u2028é"]} for row in QUESTIONS]
    for name in ("one", "two"):
        write_rows(tmp_path / f"{name}.questions{end}", rows)
    assert [row.model_dump(exclude_unset=True) for row in read_questions(tmp_path / "one")] == rows
    assert (tmp_path / f"one.questions{end}").read_bytes() == (tmp_path / f"two.questions{end}").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"one.questions{end}", f"two.questions{end}"]


def test_an_orphan_is_named(write: Write) -> None:
    with pytest.raises(PackError, match=r"line 5, field qid: trace 'q9#1' belongs to no question \('q9'\)"):
        read_pack(write(traces=[*TRACES, {**TRACES[0], "qid": "q9", "trace_id": "q9#1"}]))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"plain text", lambda data: data[:15] + b"\xff" * 99]
)
def test_a_damaged_gzip_file_is_named(write: Write, damage: Callable[[bytes], bytes]) -> None:
    prefix = write(gz=True)
    path = Path(f"{prefix}.traces.jsonl.gz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(PackError, match=r"pack\.traces\.jsonl\.gz, after line \d: a damaged gzip file: "):
        read_pack(prefix)


def test_the_real_pack(repository: Path) -> None:
    prefix = repository / ".." / "shared" / "data" / "packs" / "usmle_dev100_n29"
    if not Path(f"{prefix}.traces.jsonl.gz").exists():
        pytest.skip("the packs in ../shared/data are not on this machine")
    every = read_pack(prefix)
    assert len(every) == 2871
    assert len({labelled.question_id for labelled in every}) == 99
    assert round(sum(labelled.label or 0 for labelled in every) / len(every), 3) == 0.410
    first = read_pack(prefix, 1)
    assert len(first) == len({labelled.question_id for labelled in first}) == 99
    assert [labelled.case.id for labelled in first] == [
        labelled.case.id for labelled in every if labelled.case.id.endswith("#01")
    ]


def test_a_line_that_unpacks_to_more_than_a_record_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.sources.json_lines.LONGEST_LINE", 1000)
    with pytest.raises(PackError, match=r"traces\.jsonl\.gz, line 1: longer than 1000 bytes"):
        read_pack(write(traces=[b" " * 2000], gz=True))
