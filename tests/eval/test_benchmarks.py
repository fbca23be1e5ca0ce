"""Each adapter reads a small file in its publisher's own columns, made here; no row is real."""

import csv
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from eval.benchmarks.catalogue import BENCHMARKS
from eval.benchmarks.fetch import Provenance, fetch, read_provenance
from eval.benchmarks.schema import CHECK_TEXT, BenchmarkError
from eval.benchmarks.source import Commit, read_ids
from verifier.packs import read_pack, read_questions

SHA = "0123456789abcdef0123456789abcdef01234567"
OPTIONS = {"A": "Rest", "B": "Insulin", "C": "Water", "D": "Salt"}
ROWS: dict[str, list[dict[str, Any]]] = {
    "medqa": [
        {"question": "What now?", "answer": "Insulin", "options": OPTIONS, "meta_info": "step1", "answer_idx": "B",
         "metamap_phrases": ["now"]},
        {"question": "And then?", "answer": "Salt", "options": OPTIONS, "meta_info": "step2&3", "answer_idx": "D",
         "metamap_phrases": []},
    ],
    "medmcqa": [
        {"id": "e9ad821a", "question": "Which?", "opa": "Rest", "opb": "Insulin", "opc": "Water", "opd": "Salt", "cop": 1,
         "choice_type": "single", "exp": "Because.", "subject_name": "Medicine", "topic_name": None},
    ],
    "mmlu-med": [
        {"question": "Which bone?", "subject": "anatomy", "choices": ["Ulna", "Rib", "Tibia", "Atlas"], "answer": 3},
        {"question": "Which star?", "subject": "astronomy", "choices": ["Sun", "Sirius", "Vega", "Deneb"], "answer": 0},
        {"question": "Which gene?", "subject": "medical_genetics", "choices": ["a", "b", "c", "d"], "answer": 0},
    ],
    "medxpertqa": [
        {"id": "Text-7", "question": "What next?\nAnswer Choices: (A) Rest (B) Insulin", "label": "J",
         "options": dict(zip("ABCDEFGHIJ", (f"Step {i}" for i in range(10)), strict=True)), "medical_task": "Treatment",
         "body_system": "Endocrine", "question_type": "Reasoning"},
    ],
    "pubmedqa": [
        {"pubid": 21645374, "question": "Does it work?",
         "context": {"contexts": ["We tried.", "It did."], "labels": ["AIM", "RESULTS"], "meshes": ["Humans"]},
         "long_answer": "It works.", "final_decision": "yes"},
        {"pubid": 16418930, "question": "Is it safe?", "context": {"contexts": ["Few fell ill."], "labels": ["RESULTS"],
         "meshes": []}, "long_answer": "Perhaps.", "final_decision": "maybe"},
    ],
    "medec": [
        {"Text ID": "ms-val-0", "Text": "A cough. It is gout.", "Sentences": "0 A cough.\n1 It is gout.", "Error Flag": "1",
         "Error Type": "diagnosis", "Error Sentence ID": "1", "Error Sentence": "It is gout.",
         "Corrected Sentence": "It is a cold.", "Corrected Text": "A cough. It is a cold."},
        {"Text ID": "ms-val-1", "Text": "A cough. It is a cold.", "Sentences": "0 A cough.\n1 It is a cold.", "Error Flag": "0",
         "Error Type": "NA", "Error Sentence ID": "-1", "Error Sentence": "NA", "Corrected Sentence": "NA",
         "Corrected Text": "NA"},
    ],
}  # fmt: skip


class SmallHub:
    """A hub that holds the rows above, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None, str, str]] = []

    def commit(self, repository: str, revision: str) -> Commit:
        return Commit(SHA if revision == "main" else revision, "mit")

    def rows(self, repository: str, config: str | None, split: str, sha: str) -> Iterator[Mapping[str, Any]]:
        self.asked.append((repository, config, split, sha))
        (name,) = [
            name
            for name, one in BENCHMARKS.items()
            if (one.repository, one.split_there) == (repository, split) and not one.chosen_by
        ]
        yield from (row for row in ROWS[name] if name != "mmlu-med" or row["subject"] == config)


def local(tmp_path: Path, name: str, ending: str, rows: list[dict[str, Any]] | None = None) -> Path:
    """The rows of a benchmark as a file."""
    path, rows = tmp_path / f"{name}{ending}", ROWS[name] if rows is None else rows
    if ending == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif ending == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif ending == ".json":
        path.write_text(json.dumps(rows))
    else:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    return path


def fetched(tmp_path: Path, name: str, **how: Any) -> tuple[Path, Provenance]:
    prefix = tmp_path / "packs" / name
    return prefix, fetch(BENCHMARKS[name], prefix, how.pop("hub", SmallHub()), partial=True, **how)


EXPECTED = {
    "medqa": [("medqa-test-00001", "What now?", "B", "Insulin"), ("medqa-test-00002", "And then?", "D", "Salt")],
    "medmcqa": [("medmcqa-e9ad821a", "Which?", "B", "Insulin")],
    "mmlu-med": [
        ("mmlu-anatomy-00001", "Which bone?", "D", "Atlas"),
        ("mmlu-medical_genetics-00002", "Which gene?", "A", "a"),
    ],
    "medxpertqa": [("medxpertqa-Text-7", "What next?", "J", "Step 9")],
    "pubmedqa": [
        ("pubmedqa-21645374", "We tried.\n\nIt did.\n\nDoes it work?", "A", "yes"),
        ("pubmedqa-16418930", "Few fell ill.\n\nIs it safe?", "C", "maybe"),
    ],
}


@pytest.mark.parametrize("ending", ["hub", ".jsonl", ".jsonl.gz", ".json", ".parquet"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_benchmark_becomes_a_pack(tmp_path: Path, name: str, ending: str) -> None:
    path = None if ending == "hub" else local(tmp_path, name, ending)
    prefix, provenance = fetched(tmp_path, name, local=path)
    rows = read_questions(prefix)
    found = [(row.id, row.asked().text, row.answer, (row.options or {})[row.answer or ""]) for row in rows]
    assert found == EXPECTED[name]
    assert provenance.rows == len(rows)
    assert not provenance.complete
    assert provenance.licence == BENCHMARKS[name].licence
    assert (provenance.revision, provenance.licence_on_hub) == (
        (BENCHMARKS[name].revision, "mit") if path is None else (None, None)
    )
    assert read_provenance(prefix) == provenance.model_dump()


@pytest.mark.parametrize("name", ["medqa", "mmlu-med", "pubmedqa"])
def test_the_same_rows_give_the_same_digest_from_anywhere(tmp_path: Path, name: str) -> None:
    files = [local(tmp_path, name, ending) for ending in (".jsonl", ".parquet")]
    made = [fetched(tmp_path / str(number), name, local=path)[1] for number, path in enumerate([None, *files])]
    assert len({provenance.sha256 for provenance in made}) == 1


def test_a_copy_of_a_hub_repository_is_read_by_the_datasets_library(tmp_path: Path) -> None:
    """The folder has the hub's layout: a card that declares configurations and splits, and Parquet files."""
    folder = tmp_path / "mmlu"
    card = "---\nconfigs:\n"
    for subject in sorted(BENCHMARKS["mmlu-med"].subjects):
        (folder / subject).mkdir(parents=True)
        rows = [{"question": f"{subject}?", "subject": subject, "choices": ["a", "b", "c", "d"], "answer": 1}]
        parquet.write_table(pa.Table.from_pylist(rows), folder / subject / "test-00000-of-00001.parquet")
        card += f"- config_name: {subject}\n  data_files:\n  - split: test\n    path: {subject}/test-*\n"
    (folder / "README.md").write_text(f"{card}---\n")
    prefix, provenance = fetched(tmp_path, "mmlu-med", local=folder)
    assert [row.question for row in read_questions(prefix)] == [f"{one}?" for one in BENCHMARKS["mmlu-med"].configs]
    assert provenance.source == "mmlu"
    with pytest.raises(BenchmarkError, match="give its folder or file with --from"):
        fetched(tmp_path / "again", "medxpertqa", local=folder)  # has no such configuration


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_planted_errors_become_judged_cases(tmp_path: Path, ending: str) -> None:
    prefix, provenance = fetched(tmp_path, "medec", local=local(tmp_path, "medec", ending))
    wrong, right = read_pack(prefix)
    assert (wrong.case.id, wrong.case.trace.text, wrong.label) == ("medec-ms-val-0", "A cough. It is gout.", 0)
    assert (right.case.id, right.case.trace.text, right.label) == ("medec-ms-val-1", "A cough. It is a cold.", 1)
    assert wrong.case.question.text == right.case.question.text == CHECK_TEXT
    assert (wrong.generator, wrong.answer, wrong.gold) == ("MEDEC", None, None)
    with gzip.open(f"{prefix}.traces.jsonl.gz") as lines:
        rows = [json.loads(line) for line in lines]
    assert (rows[0]["error_sentence_id"], rows[0]["corrected_sentence"]) == (1, "It is a cold.")
    assert (rows[1]["error_sentence_id"], rows[1]["error_type"]) == (None, None)
    assert provenance.benchmark == "medec"


def test_a_pack_of_ours_can_be_read_again(tmp_path: Path) -> None:
    prefix, first = fetched(tmp_path, "pubmedqa")
    _, second = fetched(tmp_path / "again", "pubmedqa", local=Path(f"{prefix}.questions.jsonl.gz"))
    assert [row.asked() for row in read_questions(prefix)]
    assert second.sha256 == first.sha256


def test_the_hub_is_read_at_the_commit_that_the_revision_stands_for(tmp_path: Path) -> None:
    hub = SmallHub()
    fetched(tmp_path, "medqa", hub=hub)
    fetched(tmp_path / "branch", "medqa", hub=hub, revision="main")
    fetched(tmp_path / "pinned", "medqa", hub=hub, revision="f" * 40)
    assert hub.asked == [
        ("GBaker/MedQA-USMLE-4-options", None, "test", BENCHMARKS["medqa"].revision),
        ("GBaker/MedQA-USMLE-4-options", None, "test", SHA),
        ("GBaker/MedQA-USMLE-4-options", None, "test", "f" * 40),
    ]


@pytest.mark.parametrize("how", [{"revision": "e" * 40}, {"repository": "sauravlmx/MEDEC-MS@" + "e" * 40}])
def test_a_repository_may_call_the_split_otherwise(tmp_path: Path, how: dict[str, str]) -> None:
    hub = SmallHub()
    _, provenance = fetched(tmp_path, "medec", hub=hub, **how)
    assert hub.asked == [("sauravlmx/MEDEC-MS", None, "validation_ms", "e" * 40)]
    assert (provenance.source, provenance.revision, provenance.split) == (
        "sauravlmx/MEDEC-MS", "e" * 40, "validation",
    )  # fmt: skip


def test_every_revision_is_a_commit_and_few_are_not_known() -> None:
    for benchmark in BENCHMARKS.values():
        assert benchmark.repository
        assert benchmark.revision is None or re.fullmatch(r"[0-9a-f]{40}", benchmark.revision)
    assert {name for name, one in BENCHMARKS.items() if one.revision is None} == {"medec", "medec-test"}


@pytest.mark.parametrize(
    ("name", "how", "why"),
    [
        (
            "medec",
            {},
            r"no commit of sauravlmx/MEDEC-MS is known here.* download the data from https://github.com/abachaa/",
        ),
        ("medqa", {"repository": "a/copy"}, r"no commit of a/copy is known here.* --repository NAME@COMMIT"),
        ("medqa", {"repository": "a/copy@x", "revision": "y"}, r"two revisions are given, 'x' .* and 'y'"),
    ],
)
def test_without_a_commit_the_hub_is_not_read(tmp_path: Path, name: str, how: dict[str, str], why: str) -> None:
    hub = SmallHub()
    with pytest.raises(BenchmarkError, match=why):
        fetched(tmp_path, name, hub=hub, **how)
    assert not hub.asked


def test_the_authors_test_split_is_chosen_by_their_list(tmp_path: Path) -> None:
    (tmp_path / "test_ground_truth.json").write_text(json.dumps({"16418930": "maybe"}))
    file = local(tmp_path, "pubmedqa", ".jsonl")
    with pytest.raises(BenchmarkError, match=r"test_ground_truth.json with --ids"):
        fetched(tmp_path, "pubmedqa-test", local=file)
    prefix, _ = fetched(tmp_path, "pubmedqa-test", local=file, ids=read_ids(tmp_path / "test_ground_truth.json"))
    assert [row.id for row in read_questions(prefix)] == ["pubmedqa-16418930"]


def test_the_authors_own_file_of_pubmedqa(tmp_path: Path) -> None:
    own = {"21645374": {"QUESTION": "Does it work?", "CONTEXTS": ["We tried.", "It did."], "LABELS": ["AIM"], "MESHES": [],
                        "LONG_ANSWER": "It works.", "final_decision": "yes"}}  # fmt: skip
    (tmp_path / "ori_pqal.json").write_text(json.dumps(own))
    prefix, _ = fetched(tmp_path, "pubmedqa", local=tmp_path / "ori_pqal.json")
    assert read_questions(prefix)[0].asked().text == EXPECTED["pubmedqa"][0][1]


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("medqa", {"answer_idx": "E"}, r"medqa\.jsonl, row 1: row: .*'E' is not among the options A, B, C, D"),
        ("medqa", {"question": " "}, "question: String should have at least 1 character"),
        ("medqa", {"options": {"B": "Insulin"}}, "options: Dictionary should have at least 2 items"),
        ("medmcqa", {"cop": -1}, "the answer is -1; expected a number from 0 to 3"),
        ("medmcqa", {"cop": 4}, "the answer is 4"),
        ("medmcqa", {"opc": ""}, "options.C: String should have at least 1 character"),
        ("pubmedqa", {"final_decision": "perhaps"}, "no column, or no known value, 'perhaps' of pubmedqa"),
        ("pubmedqa", {"context": None}, "row 1: "),
        ("medec", {"Error Sentence ID": "-1"}, "says which sentence it is in"),
        ("medec", {"Error Flag": "perhaps"}, "invalid literal"),
        ("medxpertqa", {"options": None}, "row 1: "),
    ],
)
def test_a_row_that_is_not_right_is_named(tmp_path: Path, name: str, change: dict[str, Any], reason: str) -> None:
    rows = [{**ROWS[name][0], **change}, *ROWS[name][1:]]
    with pytest.raises(BenchmarkError, match=reason):
        fetched(tmp_path, name, local=local(tmp_path, name, ".jsonl", rows))
    assert not (tmp_path / "packs").exists()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_missing_column_is_named(tmp_path: Path, name: str) -> None:
    rows = [{column: value for column, value in row.items() if column != "question"} for row in ROWS[name]]
    with pytest.raises(BenchmarkError, match="row 1: no column, or no known value, 'question'"):
        fetched(tmp_path, name, local=local(tmp_path, name, ".jsonl", rows))


def test_another_number_of_rows_is_refused_unless_a_part_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"expected 1273 rows, found 2: .* --partial"):
        fetch(BENCHMARKS["medqa"], tmp_path / "medqa", SmallHub())
    rows = [{**ROWS["medqa"][0], "question": f"Question {number}?"} for number in range(1273)]
    path = local(tmp_path, "medqa", ".jsonl", rows)
    assert fetch(BENCHMARKS["medqa"], tmp_path / "medqa", SmallHub(), local=path).complete


def test_ids_are_unique(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="rows 1 and 2 have the same id 'medmcqa-e9ad821a'"):
        fetched(tmp_path, "medmcqa", local=local(tmp_path, "medmcqa", ".jsonl", ROWS["medmcqa"] * 2))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    fetched(tmp_path, "medqa")
    with pytest.raises(BenchmarkError, match=r"medqa\.questions\.jsonl\.gz is there already"):
        fetched(tmp_path, "medqa")


@pytest.mark.parametrize(
    "name", ["no.jsonl", "no", "notes.txt", "broken.json", "broken.jsonl.gz", "list.jsonl", "empty.jsonl"]
)
def test_a_place_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    contents = {
        "notes.txt": "notes",
        "broken.json": "{",
        "broken.jsonl.gz": "plain",
        "list.jsonl": "[1]\n",
        "empty.jsonl": "",
    }
    if name in contents:
        (tmp_path / name).write_text(contents[name])
    with pytest.raises(
        BenchmarkError, match=r"no row was found" if name == "empty.jsonl" else name.replace(".", r"\.")
    ):
        fetched(tmp_path, "medqa", local=tmp_path / name)


@pytest.mark.parametrize(
    ("name", "file", "rows"),
    [("medmcqa", "medmcqa_dev.questions.jsonl.gz", 4183), ("medec", "medec_validation.jsonl.gz", 574)],
)
def test_real_files(repository: Path, tmp_path: Path, name: str, file: str, rows: int) -> None:
    path = repository / ".." / "shared" / "data" / "packs" / file
    if not path.exists():
        pytest.skip("the packs in ../shared/data are not on this machine")
    made = fetch(BENCHMARKS[name], tmp_path / name, SmallHub(), local=path)
    assert made.complete
    assert made.rows == rows
    if name == "medec":
        assert len(read_pack(tmp_path / name)) == rows


def test_ids_that_are_nested_too_deeply_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_text("[" * 100_000)
    with pytest.raises(BenchmarkError, match=r"ids\.json: it is nested too deeply"):
        read_ids(path)
