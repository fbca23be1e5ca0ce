import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worlds import SMALL

from curriculum.closed_world.files import MANIFEST, write_worlds
from curriculum.closed_world.world import VERSION
from curriculum.faults import Side
from retrieval.sources import read
from verifier.packs import read_pack
from verifier.transcript import Author
from verifier.types import Case

Written = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("world") / "new"
    return folder, dict(write_worlds(folder, SMALL))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_manifest_says_what_is_there(written: Written) -> None:
    folder, manifest = written
    assert json.loads((folder / MANIFEST).read_text()) == manifest
    assert (manifest["version"], manifest["recipe"]) == (VERSION, SMALL.model_dump())
    sums = {name: digest for side in manifest["sides"].values() for name, digest in side["sha256"].items()}
    assert {path.name for path in folder.iterdir()} == {MANIFEST, *sums}
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    train, test = (manifest["sides"][side]["counts"] for side in Side)
    assert (train["questions"], train["traces"], train["right_traces"], train["demonstrations"]) == (96, 384, 192, 384)
    assert "demonstrations" not in test
    assert sum(train["errors"].values()) == 192
    assert train["formulary"] == len(lines(folder / "train.formulary.jsonl"))


@pytest.mark.parametrize("side", list(Side))
def test_evaluation_reads_the_pack(written: Written, side: Side) -> None:
    folder, _ = written
    cases = read_pack(folder / side)
    assert len(cases) == 384
    assert sum(case.label or 0 for case in cases) == 192
    assert all(case.case.question.options and case.gold in case.case.question.options for case in cases)
    # A trace without an error ends with the right answer; one with an error may, if the error is elsewhere.
    assert {case.answer == case.gold for case in cases if case.label} == {True}
    assert {case.answer == case.gold for case in cases if not case.label} == {True, False}


def test_an_index_reads_the_corpus_and_every_trace_has_its_passage(written: Written) -> None:
    folder, _ = written
    passages = {passage.id: passage for passage in read(str(folder / "test.formulary.jsonl"))}
    assert {passage.corpus for passage in passages.values()} == {"test.formulary"}
    for row in lines(folder / "test.traces.jsonl"):
        text = passages[row["passage_id"]].text
        assert all(word in text for claim in row["claims"] for word in claim["right"].split())


def test_an_error_is_recorded_with_its_place_and_what_is_right(written: Written) -> None:
    folder, _ = written
    for row in lines(folder / "test.traces.jsonl"):
        wrong = [claim for claim in row["claims"] if claim["says"] != claim["right"]]
        assert (row["error"] is None) == (row["trace_label"] == 1) == (not wrong)
        if row["error"]:
            found = row["error"]
            assert row["claims"][found["claim"]] == wrong[0]
            assert (found["says"], found["right"]) == (wrong[0]["says"], wrong[0]["right"])
            assert row["reasoning"][found["start"] : found["end"]] == found["sentence"]


def test_demonstrations_are_cases_with_pieces_by_author(written: Written) -> None:
    folder, _ = written
    rows = lines(folder / "train.demonstrations.jsonl")
    cases = {case.case.id: case for case in read_pack(folder / "train")}
    for row in rows:
        assert Case(id=row["id"], question=row["question"], trace=row["trace"]) == cases[row["id"]].case
        assert row["label"] == cases[row["id"]].label
        assert [Author(piece["author"]) for piece in row["pieces"]] == [Author.POLICY, Author.EVIDENCE, Author.POLICY]
    blind = lines(folder / "train.demonstrations-without-search.jsonl")
    assert [(row["id"], row["label"]) for row in blind] == [(row["id"], row["label"]) for row in rows]
    assert {piece["author"] for row in blind for piece in row["pieces"]} == {Author.POLICY}


def test_the_same_seed_gives_the_same_bytes_in_a_process_that_hashes_otherwise(
    written: Written, tmp_path: Path
) -> None:
    folder, _ = written
    script = (
        "import sys; from pathlib import Path; from curriculum.closed_world.files import write_worlds;"
        "from curriculum.closed_world.world import Recipe;"
        f"write_worlds(Path(sys.argv[1]), Recipe.model_validate_json({SMALL.model_dump_json()!r}))"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "again")],
        check=True,
        env={"PYTHONHASHSEED": "12345", "PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_another_seed_gives_other_questions(written: Written, tmp_path: Path) -> None:
    folder, _ = written
    write_worlds(tmp_path, SMALL.model_copy(update={"seed": 1}), [Side.TEST])
    ours, theirs = (read_pack(place / "test") for place in (folder, tmp_path))
    assert not {case.case.digest for case in ours} & {case.case.digest for case in theirs}
