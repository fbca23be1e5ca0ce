import gzip
import json
from pathlib import Path

import pytest

from eval.beir import read_beir
from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.passage import SourceError

CORPUS = [
    {"_id": "d1", "title": "Gout", "text": "uric acid"},
    {"_id": "d2", "title": "", "text": "vitamin D"},
    {"_id": "d3", "title": "Gout again", "text": "uric acid"},
]
QUERIES = [
    {"_id": "q1", "text": "what is gout", "more": 1},
    {"_id": "q2", "text": "rickets"},
    {"_id": "q3", "text": "?"},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td3\t2\nq1\td2\t0\nq2\td2\t0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "small"
    place.mkdir()
    (place / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CORPUS))
    (place / "queries.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in QUERIES))
    (place / "qrels.tsv").write_text(QRELS)
    return place


def test_a_benchmark_is_read(folder: Path) -> None:
    data = read_beir(folder)
    assert data.name == "small"
    assert [(document.id, document.title, document.text) for document in data.documents] == [
        ("d1", "Gout", "uric acid"),
        ("d2", "", "vitamin D"),
    ]
    assert data.queries == {"q1": "what is gout"}
    assert data.grades["q1"] == {"d1": 2, "d2": 0}
    assert (data.unanswerable, data.merged) == (2, 1)


def test_documents_are_what_an_index_keeps(folder: Path) -> None:
    more = [
        {"_id": "d4", "title": "Spaced", "text": " uric\n\u00a0acid\u200b "},  # differs from d1 in nothing that is seen
        {"_id": "d5", "title": "Only a title", "text": ""},
        {"_id": "d6", "title": "", "text": " \n"},
        {"_id": "d7", "title": "vitamin  D", "text": " "},
    ]
    with (folder / "corpus.jsonl").open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in more)
    (folder / "qrels.tsv").write_text(QRELS + "q1\td4\t3\nq2\td5\t1\nq2\td6\t1\nq3\td7\t2\n")
    data = read_beir(folder)
    assert [(document.id, document.title, document.text) for document in data.documents][2:] == [
        ("d5", "", "Only a title")
    ]
    assert data.grades == {"q1": {"d1": 3, "d2": 0}, "q2": {"d2": 0, "d5": 1, "d6": 1}, "q3": {"d2": 2}}
    assert (data.merged, data.blank) == (3, 1)
    cleaner = Cleaner(KEEP_ALL)
    assert [document.id for document in cleaner.kept(data.documents)] == ["d1", "d2", "d5"]
    assert not any(cleaner.counts.values())


def test_the_other_layout_is_the_same(folder: Path) -> None:
    before = read_beir(folder)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    (folder / "qrels").mkdir()
    (folder / "qrels.tsv").unlink()
    (folder / "qrels" / "test.tsv").write_text(
        QRELS.split("\n", 1)[1].replace("\n", "\r\n")
    )  # no header, other line ends
    after = read_beir(folder)
    assert (after.queries, after.grades) == (before.queries, before.grades)
    assert [document.id for document in after.documents] == [document.id for document in before.documents]


def test_a_pair_that_was_judged_twice_has_its_best_grade(folder: Path) -> None:
    (folder / "qrels.tsv").write_text(QRELS + "q2\td2\t3\nq2\td2\t1\n")
    assert read_beir(folder).grades["q2"] == {"d2": 3}


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("queries.jsonl", "[]", r"queries\.jsonl, line 7: expected a JSON object, found list"),
        ("queries.jsonl", "{", r"queries\.jsonl, line 7: expected a JSON object in UTF-8"),
        ("queries.jsonl", '{"_id": "q4"}', r"queries\.jsonl, line 7, field text: expected a text, found None"),
        ("queries.jsonl", '{"_id": 4, "text": "x"}', r"queries\.jsonl, line 7, field _id: expected a text, found 4"),
        ("queries.jsonl", '{"_id": "q1", "text": "x"}', r"line 7, field _id: 'q1' is the id of an earlier query"),
        ("qrels.tsv", "q1\td1", r"qrels\.tsv, line 6: expected query id, document id and grade .* found 2 fields"),
        ("qrels.tsv", "q9\td1\t1", r"qrels\.tsv, line 6, field query-id: 'q9' is not a query"),
        ("qrels.tsv", "q1\td9\t1", r"qrels\.tsv, line 6, field corpus-id: 'd9' is not a document"),
        ("qrels.tsv", "q1\td2\tgood", r"qrels\.tsv, line 6, field score: expected a whole number, found 'good'"),
        ("corpus.jsonl", '{"_id": "d4"}', r"corpus\.jsonl, line 4, field text"),
    ],
)
def test_a_bad_line_is_named_by_file_line_and_field(folder: Path, file: str, line: str, said: str) -> None:
    with (folder / file).open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(SourceError, match=said):
        read_beir(folder)


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl", "qrels.tsv"])
def test_a_missing_file_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(SourceError, match=f"has no {file}"):
        read_beir(folder)


def test_a_cut_file_is_named(folder: Path) -> None:
    content = gzip.compress((folder / "queries.jsonl").read_bytes())
    (folder / "queries.jsonl").unlink()
    (folder / "queries.jsonl.gz").write_bytes(content[:-12])
    with pytest.raises(SourceError, match=r"queries\.jsonl\.gz: cannot be read"):
        read_beir(folder)


def test_nothing_relevant_is_nothing_to_measure(folder: Path) -> None:
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t0\n")
    with pytest.raises(SourceError, match="no query has a relevant document"):
        read_beir(folder)


def test_the_judged_answers_of_liveqa(repository: Path) -> None:
    folder = repository.parent / "shared" / "data" / "retrieval" / "medquad_liveqa"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    data = read_beir(folder)
    assert (len(data.documents), data.merged, len(data.queries), data.unanswerable) == (449, 16, 60, 43)
