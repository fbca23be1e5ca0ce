import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_fakes import LINES, done, handed_in, results, service, until
from serve_fakes import CASE, GatedEngine, believes, writes

from configs.settings import JobSettings
from verifier.engines.scripted import ScriptedEngine

# ---- what is on the disk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda lines: [*lines, b'{"index":0,"sta'], 4),
        (lambda lines: [*lines[:3], lines[3][:-1]], 3),  # its end of line is missing
        (lambda lines: [*lines[:3], b"\0" * 500], 3),
        (lambda lines: [lines[0], b"junk\n", *lines[1:]], 4),
        (lambda lines: [*lines, lines[1]], 4),  # twice
        (lambda lines: [*lines, lines[1].replace(b'"index":', b'"index":9')], 4),  # of no case
        (lambda lines: [lines[0], lines[1].replace(b'"scored"', b'"sacred"'), *lines[2:]], 3),
        (lambda _: [], 0),
    ],
)
def test_what_is_not_whole_is_judged_again(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], kept: int
) -> None:
    with service(tmp_path) as client:
        path = handed_in(client, *[{**CASE, "question": f"q{n}"} for n in range(4)])
        done(client, path)
    file = tmp_path / path[1:] / "results.jsonl"
    file.write_bytes(b"".join(damage(file.read_bytes().splitlines(keepends=True))))
    engine = GatedEngine(writes, believes)
    with service(tmp_path, engine) as client:
        assert client.get(path).json()["done"] == kept
        engine.gate.set()
        assert done(client, path)["counts"] == {"scored": 4}
        assert sorted(result["index"] for result in results(client, path)) == [0, 1, 2, 3]


def test_what_a_kill_left_of_a_hand_in_is_swept_up(tmp_path: Path) -> None:
    for name in (".x.part", ".y.gone", "broken"):
        (tmp_path / "jobs" / name).mkdir(parents=True)
        (tmp_path / "jobs" / name / "cases.jsonl").write_text("{")
    with service(tmp_path) as client:
        assert client.get("/jobs").json() == {"jobs": []}
        assert client.get("/jobs/broken").status_code == 404
        done(client, handed_in(client, CASE))
    left = {path.name for path in (tmp_path / "jobs").iterdir()}
    assert "broken" in left  # nobody's to delete
    assert not left & {".x.part", ".y.gone"}


class AnotherEngine(ScriptedEngine):
    def describe(self) -> dict[str, str | int | float]:
        return {"engine": "another"}


def test_a_job_goes_on_with_its_own_judge_alone(tmp_path: Path) -> None:
    engine = GatedEngine(writes, believes)
    with service(tmp_path, engine) as client:
        path = handed_in(client, CASE, CASE)
    with service(tmp_path, AnotherEngine(writes, believes)) as client:
        state = client.get(path).json()
        assert (state["status"], state["done"]) == ("queued", 0)
        assert state["waiting_for"] == "its judge: another one is loaded here"
        assert done(client, handed_in(client, CASE))["counts"] == {"scored": 1}
        assert client.get(path).json()["done"] == 0
    with service(tmp_path) as client:
        assert done(client, path)["counts"] == {"scored": 2}


def test_nothing_of_it_is_for_other_users_of_the_machine(tmp_path: Path) -> None:
    with service(tmp_path) as client:
        path = handed_in(client, CASE)
        done(client, path)
        texts = [tmp_path / path[1:] / name for name in ("cases.jsonl", "results.jsonl")]
        for kept in (tmp_path / "jobs", tmp_path / path[1:], *texts):
            assert kept.stat().st_mode & 0o077 == 0


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_there_is_room_for_so_many_jobs(tmp_path: Path) -> None:
    with service(tmp_path, jobs=JobSettings(max_jobs=2)) as client:
        first = handed_in(client, CASE)
        handed_in(client, CASE)
        full = client.post("/jobs", json={"cases": [CASE]})
        assert full.status_code == 503
        assert full.headers["retry-after"] == "1"
        assert full.json()["type"] == "urn:medverify:problem:jobs-full"
        client.delete(f"{first}?forget=true")
        handed_in(client, CASE)


def test_their_size_together_is_bounded(tmp_path: Path) -> None:
    with service(tmp_path, jobs=JobSettings(max_kept_bytes=1000)) as client:
        path = handed_in(client, *[CASE] * 5)
        done(client, path)
        assert client.post("/jobs", json={"cases": [CASE]}).status_code == 503


@pytest.mark.parametrize("form", ["json", "lines"])
def test_a_job_has_so_many_cases(tmp_path: Path, form: str) -> None:
    with service(tmp_path, jobs=JobSettings(max_cases=3)) as client:
        for count, status in ((3, 202), (4, 413)):
            body: dict[str, Any] = (
                {"json": {"cases": [CASE] * count}}
                if form == "json"
                else {"content": (json.dumps(CASE) + "\n") * count, "headers": LINES}
            )
            reply = client.post("/jobs", **body)
            assert reply.status_code == status
        assert reply.json()["detail"] == "one job may have 3 cases"
        assert len(client.get("/jobs").json()["jobs"]) == 1


def test_an_upload_is_bounded(tmp_path: Path) -> None:
    with service(tmp_path, jobs=JobSettings(max_bytes=30_000)) as client:
        line = json.dumps(CASE).encode() + b"\n"
        for content in (line * 1000, iter([line] * 1000)):
            assert client.post("/jobs", content=content, headers=LINES).status_code == 413
        assert [path.name for path in (tmp_path / "jobs").iterdir()] == [".lock"]


def test_without_a_folder_there_are_no_jobs() -> None:
    with service(None) as client:
        assert client.get("/jobs").json() == {"jobs": []}
        assert client.get("/jobs/x").status_code == 404
        reply = client.post("/jobs", json={"cases": [CASE]})
        assert reply.status_code == 404
        assert reply.json()["type"] == "urn:medverify:problem:no-jobs"


def test_a_folder_that_cannot_be_used_stops_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("a file")
    with service(tmp_path) as client:
        assert client.post("/verify", json=CASE).status_code == 200
        assert client.post("/jobs", json={"cases": [CASE]}).status_code == 503
        (tmp_path / "jobs").unlink()
        until(client, "/jobs", lambda reply: "jobs" in reply)  # it is tried again
        done(client, handed_in(client, CASE))
