import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from curriculum.closed_world.files import write_worlds
from curriculum.closed_world.world import Recipe
from curriculum.faults import Side
from curriculum.pool.errors import PoolError
from curriculum.pool.sources.jsonl import JsonlSource, read_jsonl_source
from curriculum.pool.sources.medprm import GENERATOR, MedPrmSource, adapted, read_medprm_source
from curriculum.pool.sources.pack import PackSource, read_pack_source

OWN = {"licence": "CC0", "provenance": "this test"}
LINE = {"id": "t1", "question": "Why?", "options": {"A": "x", "B": "y"}, "trace": "Because.", "label": 1}


def jsonl(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def source(*files: Path, **more: Any) -> JsonlSource:
    return JsonlSource.model_validate({"kind": "jsonl", "files": files, **OWN, **more})


# Packs


def test_a_world_is_a_source(tmp_path: Path) -> None:
    write_worlds(tmp_path, Recipe(drugs=20, questions=24, traces=2), [Side.TRAIN])
    rows = read_pack_source(PackSource(kind="pack", prefix=tmp_path / "train", **OWN), "world")
    assert len(rows.examples) == 48
    assert sum(one.label for one in rows.examples) == 24
    assert rows.unlabelled == 0
    first = rows.examples[0]
    assert (first.source, first.generator) == ("world", "closed-world")
    assert first.case.id.startswith("world/")
    assert first.answer in (first.case.question.options or {})


def test_unlabelled_traces_of_a_pack_are_counted_and_left_out(tmp_path: Path) -> None:
    jsonl(tmp_path / "p.questions.jsonl", {"id": "q", "question": "Why?", "answer": "A", "options": {"A": "x"}})
    row = {"qid": "q", "generator": "m", "reasoning": "So."}
    jsonl(
        tmp_path / "p.traces.jsonl",
        {**row, "trace_id": "1", "trace_label": 1},
        {**row, "trace_id": "2", "trace_label": None},
    )
    rows = read_pack_source(PackSource(kind="pack", prefix=tmp_path / "p", **OWN), "p")
    assert [(one.case.id, one.label, one.question_id, one.answer) for one in rows.examples] == [("p/1", 1, "q", "A")]
    assert rows.unlabelled == 1


def test_a_pack_that_is_not_there_is_told_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(PoolError, match=r"source 'p': no such file: .*none\.questions\.jsonl"):
        read_pack_source(PackSource(kind="pack", prefix=tmp_path / "none", **OWN), "p")


# JSON lines


def test_columns_have_the_names_that_the_settings_give(tmp_path: Path) -> None:
    line = {"key": 7, "q": "Why?", "cot": ["One.", "Two."], "ok": False, "group": 3, "by": "m", "gold": "x"}
    columns = {"id": "key", "question": "q", "trace": "cot", "label": "ok", "question_id": "group", "generator": "by"}
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(line).encode()))
    (one,) = read_jsonl_source(source(file, columns={**columns, "answer": "gold"}), "s").examples
    assert (one.case.id, one.label, one.question_id, one.generator, one.answer) == ("s/7", 0, "3", "m", "x")
    assert one.case.trace.steps == ["One.", "Two."]


def test_lines_without_names_are_named_by_their_place_and_their_question(tmp_path: Path) -> None:
    bare = {"question": "Why?", "trace": "Because.", "label": 1}
    files = [
        jsonl(tmp_path / "a.jsonl", bare, {**bare, "question": "Why  not?"}),
        jsonl(tmp_path / "b.jsonl", {**bare, "question": "Why not?"}, {**bare, "options": {"A": "x"}}),
    ]
    a, b, c, d = read_jsonl_source(source(*files), "s").examples
    assert len({one.case.id for one in (a, b, c, d)}) == 4
    assert b.question_id == c.question_id
    assert len({one.question_id for one in (a, b, d)}) == 3


def test_null_is_no_label_and_is_counted(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", LINE, {**LINE, "id": "t2", "label": None})
    rows = read_jsonl_source(source(file), "s")
    assert (len(rows.examples), rows.unlabelled) == (1, 1)


@pytest.mark.parametrize("label", [-1, 2, 7, 0.5, 1.0, "1", "", [], {}])
def test_only_0_and_1_are_labels(tmp_path: Path, label: Any) -> None:
    with pytest.raises(PoolError, match=r"a\.jsonl, line 2, column label: expected 0, 1 or null"):
        read_jsonl_source(source(jsonl(tmp_path / "a.jsonl", LINE, {**LINE, "label": label})), "s")


def test_a_bad_line_is_told_by_file_line_and_the_files_own_column(tmp_path: Path) -> None:
    file = jsonl(
        tmp_path / "a.jsonl", {"q": "Why?", "trace": "Because.", "label": 1}, {"q": "", "trace": "", "label": 1}
    )
    with pytest.raises(PoolError, match=r"source 's': .*a\.jsonl, line 2: q: .*; trace"):
        read_jsonl_source(source(file, columns={"question": "q"}), "s")
    with pytest.raises(PoolError, match=r"line 1: no column 'correct'; name the label's column as `columns\.label`"):
        read_jsonl_source(source(file, columns={"label": "correct"}), "s")
    (tmp_path / "b.jsonl").write_text('{"question": ')
    with pytest.raises(PoolError, match=r"b\.jsonl, line 1: expected a JSON object"):
        read_jsonl_source(source(tmp_path / "b.jsonl"), "s")
    with pytest.raises(PoolError, match=r"none\.jsonl: cannot be read"):
        read_jsonl_source(source(tmp_path / "none.jsonl"), "s")


# Med-PRM

SOLUTION = {
    "solution": "Step 1: It is. ки\nStep 2: The answer is B.",
    "answer": "B",
    "orm_label": 1,
    "prm_processed_solution": "Step 1: It is. ки Step 2: The answer is B. ки",
    "orm_processed_solution": "Step 1: It is. Step 2: The answer is B. ки",
    "prm_hard_label": [1, 0],
    "prm_soft_label": [0.9, 0.1],
    "prm_gemini_label": [1, 1],
    "prm_llama_label": [0, 0],
}
ROW = {
    "question_id": 12,
    "data_source": "med_qa",
    "question": "Which?",
    "options": ["Insulin", "Glucose"],
    "correct_answer": "B",
    "related_docs": ["A document."],
    "solutions": [
        SOLUTION,
        {**SOLUTION, "solution": "Step 1: The answer is A.", "answer": "A", "orm_label": 0},
        {**SOLUTION, "solution": None, "orm_label": 0},
        {**SOLUTION, "orm_label": None},
        {**SOLUTION, "solution": "", "prm_processed_solution": " ки"},
    ],
}


def test_traces_of_medprm_have_the_label_of_the_whole_and_no_markers() -> None:
    rows = adapted([ROW], "m")
    a, b, c = rows.examples
    assert rows.unlabelled == 2
    assert [one.label for one in (a, b, c)] == [1, 0, 0]
    assert a.case.trace.text == "Step 1: It is.\nStep 2: The answer is B."
    assert c.case.trace.text == "Step 1: It is. Step 2: The answer is B."
    assert a.case.question.options == {"A": "Insulin", "B": "Glucose"}
    assert {(one.question_id, one.generator, one.answer) for one in (a, b, c)} == {("med_qa-12", GENERATOR, "B")}
    assert len({one.case.id for one in (a, b, c)}) == 3


def test_a_copy_of_medprm_is_read_from_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "1_train_dataset.json").write_text(json.dumps([ROW, {**ROW, "question_id": 13}]))
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    rows = read_medprm_source(MedPrmSource(kind="medprm", folder=tmp_path), "m")
    assert [one.question_id for one in rows.examples] == ["med_qa-12"] * 3 + ["med_qa-13"] * 3
    assert rows.unlabelled == 4


def test_a_folder_without_the_set_is_told(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(PoolError, match=r"source 'm': .*none cannot be read .*download the set and give its `folder`"):
        read_medprm_source(MedPrmSource(kind="medprm", folder=tmp_path / "none"), "m")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"solutions": [{**SOLUTION, "orm_label": 2}]}, r"solutions\.0\.orm_label"),
        ({"solutions": [{"solution": "x"}]}, r"solutions\.0\.orm_label: Field required"),
        ({"question": None}, "question"),
        ({"options": ["x"] * 27}, "options"),
    ],
)
def test_other_columns_are_refused_by_row_and_name(change: dict[str, Any], told: str) -> None:
    with pytest.raises(PoolError, match=rf"source 'm', row 2: {told}"):
        adapted([ROW, {**ROW, **change}], "m")


def test_the_hub_is_read_at_a_commit_or_not_at_all() -> None:
    with pytest.raises(PoolError, match=r"only at a pinned commit; .* dmis-lab/llama-3\.1-medprm-reward-training-set"):
        read_medprm_source(MedPrmSource(kind="medprm"), "m")
    for wrong in ({"revision": "main"}, {"revision": "a" * 40, "folder": "x"}):
        with pytest.raises(ValidationError):
            MedPrmSource.model_validate({"kind": "medprm", **wrong})
