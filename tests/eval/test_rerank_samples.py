from pathlib import Path
from typing import Any

import pytest
from rerank_fakes import sample, write_lines

from eval.cases import BadLine
from eval.rerank.samples import ColumnError, Columns, Samples, check_columns
from eval.rerank.sources import open_source
from verifier.types import Case


def found(tmp_path: Path, record: Any, **columns: Any) -> list[Case | BadLine]:
    source = open_source(write_lines(tmp_path / "x.jsonl", [b"", record]))
    (row,) = source.rows()
    samples = Samples(source, Columns(**columns))
    read = samples.parse(row)
    if isinstance(read, BadLine):
        return [read]
    return [case for _, case in samples.cases(row, read)]


def one(tmp_path: Path, record: Any, **columns: Any) -> Case:
    (case,) = found(tmp_path, record, **columns)
    assert isinstance(case, Case), case
    return case


def problem(tmp_path: Path, record: Any, **columns: Any) -> str:
    (bad,) = found(tmp_path, record, **columns)
    assert isinstance(bad, BadLine)
    return str(bad)


def test_a_row_is_a_case_under_any_names(tmp_path: Path) -> None:
    case = one(tmp_path, {"prompt": "Why?", "response": ["a", "b"], "choices": {"A": "x"}, "other": 1},
               question="prompt", trace="response", options="choices")  # fmt: skip
    expected = {"id": "2", "question": "Why?", "options": {"A": "x"}, "trace": ["a", "b"]}
    assert case == Case.model_validate(expected)


@pytest.mark.parametrize(
    "options",
    [
        {"A": "x", "B": "y"},
        {"A": "x", "B": "y", "C": None},
        ["x", "y"],
        [{"key": "A", "value": "x"}, {"key": "B", "value": "y"}],
    ],
)
def test_options_as_data_sets_have_them(tmp_path: Path, options: Any) -> None:
    assert one(tmp_path, sample("q", "t", o=options), options="o").question.options == {"A": "x", "B": "y"}


@pytest.mark.parametrize("options", [None, {}, [], {"A": None}])
def test_no_options(tmp_path: Path, options: Any) -> None:
    assert one(tmp_path, sample("q", "t", o=options), options="o").question.options is None
    assert one(tmp_path, sample("q", "t"), options="o").question.options is None


def test_a_row_with_a_list_of_samples(tmp_path: Path) -> None:
    record = {"question": "q", "samples": ["one", ["a", "b"], {"text": "three", "logprob": -1}, "", {"other": 1}]}
    cases = found(tmp_path, record, samples="samples", trace="text")
    assert [case.id for case in cases if isinstance(case, Case)] == ["2.0", "2.1", "2.2"]
    assert [case.trace.render() for case in cases if isinstance(case, Case)] == ["one", "Step 1: a\nStep 2: b", "three"]
    assert [str(case) for case in cases if isinstance(case, BadLine)] == [
        "line 2: samples[3]: String should have at least 1 character",
        "line 2: samples[4].text: expected a text or a list of steps, found nothing",
    ]


@pytest.mark.parametrize(
    ("record", "columns", "told"),
    [
        (b"{", {}, "line 2: not JSON ("),
        (b'{"question": "\xff"}', {}, "line 2: not JSON ("),
        (b"[1]", {}, "line 2: expected an object, found list"),
        ({"trace": "t"}, {}, "line 2: question: Input should be a valid string"),
        (sample("", "t"), {}, "line 2: question: String should have at least 1 character"),
        (sample(3, "t"), {}, "line 2: question: Input should be a valid string"),
        ({"question": "q"}, {}, "line 2: trace: expected a text or a list of steps, found nothing"),
        (sample("q", 3), {}, "line 2: trace: expected a text or a list of steps, found int"),
        (sample("q", ["a", ""]), {}, "line 2: trace.1: String should have at least 1 character"),
        (sample("q", []), {}, "line 2: trace: List should have at least 1 item"),
        (sample("q", "t", o="A or B"), {"options": "o"}, "line 2: o: Input should be a valid dictionary"),
        (sample("q", "t", o={"A": 1}), {"options": "o"}, "line 2: o.A: Input should be a valid string"),
        (sample("q", "t", o=["x"] * 27), {"options": "o"}, "line 2: o: Input should be a valid dictionary"),
        (sample("q", "t", s="x"), {"samples": "s"}, "line 2: s: expected a list of samples, found str"),
        (sample("q", "t", s=[]), {"samples": "s"}, "line 2: s: expected a list of samples, found an empty list"),
    ],
)
def test_what_is_wrong_is_told_by_line_and_column(
    tmp_path: Path, record: Any, columns: dict[str, str], told: str
) -> None:
    assert problem(tmp_path, record, **columns).startswith(told)


def test_a_column_that_is_not_there_is_told_with_the_nearest(tmp_path: Path) -> None:
    source = open_source(write_lines(tmp_path / "x.jsonl", [b"{", sample("q", "t"), sample("q", "t", extra=1)]))
    assert check_columns(source, {"--question-column": "question", "--id-column": None}) == {
        "question",
        "trace",
        "extra",
    }
    with pytest.raises(ColumnError) as caught:
        check_columns(source, {"--question-column": "qestion"})
    assert str(caught.value) == (
        f"{source.path}: no column 'qestion'; did you mean --question-column question? "
        "The columns are: question, trace, extra"
    )
    with pytest.raises(ColumnError, match=r"no column 'zzz'; name one with --trace-column\. The columns are: question"):
        check_columns(source, {"--trace-column": "zzz"})
