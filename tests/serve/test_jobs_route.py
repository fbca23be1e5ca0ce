import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from serve_fakes import CASE, INFO, GatedEngine, believes, judge_of, open_engine, writes
from test_select_route import JSON_VALUES

from configs.settings import JobSettings, ServeSettings
from serve.app import create_app
from serve.keys import FILE, KeyStore, Scope
from serve.stores import Stores
from verifier.engines.scripted import ScriptedEngine
from verifier.types import Judgment

LINES = {"Content-Type": "application/x-ndjson"}
QUESTIONS = {"scored": "q", "unparseable": "silence", "engine_failed": "trouble", "retrieval_failed": "darkness"}


@contextmanager
def service(
    state: Path | None, engine: ScriptedEngine | None = None, keys: KeyStore | None = None, **settings: Any
) -> Iterator[TestClient]:
    jobs = settings.pop("jobs", JobSettings())
    stores = Stores(keys=keys, jobs=state / "jobs" if state else None)
    serve = ServeSettings(retry_after_s=1, jobs=jobs, max_body_bytes=20_000, **settings)
    with TestClient(create_app(judge_of(engine), serve, INFO, stores)) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with service(tmp_path) as client:
        yield client


def until(client: TestClient, path: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        state: dict[str, Any] = client.get(path).json()
        if condition(state):
            return state
        time.sleep(0.01)
    raise AssertionError(f"it stays {state}")


def done(client: TestClient, path: str) -> dict[str, Any]:
    return until(client, path, lambda job: job["status"] == "done")


def handed_in(client: TestClient, *cases: dict[str, Any], **more: Any) -> str:
    reply = client.post("/jobs", json={"cases": list(cases), **more})
    assert reply.status_code == 202, reply.text
    assert reply.headers["location"] == f"/jobs/{reply.json()['id']}"
    location: str = reply.headers["location"]
    return location


def results(client: TestClient, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.get(f"{path}/results").text.splitlines()]


# ---- from hand-in to results -----------------------------------------------------------------------------------------


def test_every_case_has_its_result(client: TestClient) -> None:
    asked = [{**CASE, "id": status, "question": question} for status, question in QUESTIONS.items()]
    path = handed_in(client, *asked, seed=3)
    state = done(client, path)
    assert (state["total"], state["done"], state["failed"]) == (4, 4, 3)
    assert state["counts"] == dict.fromkeys(sorted(QUESTIONS), 1)
    assert state["seconds_left"] == 0.0
    assert state["waiting_for"] is None
    made = results(client, path)
    for result in made:
        judgment = Judgment.model_validate(result)  # the form of /verify
        assert judgment.id == list(QUESTIONS)[result["index"]]
        assert judgment.status == judgment.id
        assert (judgment.p_correct is None) == (judgment.status != "scored")
        assert judgment.seed == 3
    assert sorted(result["index"] for result in made) == [0, 1, 2, 3]


def test_json_lines_are_cases(client: TestClient) -> None:
    lines = "\n".join([json.dumps(CASE), "", json.dumps({**CASE, "id": "named"}), "  "])
    reply = client.post("/jobs?seed=5", content=lines, headers=LINES)
    assert reply.status_code == 202
    path = reply.headers["location"]
    assert done(client, path)["total"] == 2
    assert sorted((result["id"], result["seed"]) for result in results(client, path)) == [("0", 5), ("named", 5)]


def test_json_lines_may_be_longer_than_other_bodies(client: TestClient) -> None:
    line = json.dumps({**CASE, "trace": "x" * 5000}) + "\n"
    reply = client.post("/jobs", content=iter([line.encode()] * 40), headers=LINES)
    assert reply.status_code == 202
    assert done(client, reply.headers["location"])["counts"] == {"scored": 40}
    refused = client.post("/jobs", json={"cases": [{**CASE, "trace": "x" * 5000}] * 40})
    assert refused.status_code == 413
    assert "application/x-ndjson" in refused.json()["detail"]


def test_results_come_while_it_runs_and_others_are_served_first(tmp_path: Path) -> None:
    engine = GatedEngine(writes, believes)
    with service(tmp_path, engine, jobs=JobSettings(in_flight=3), max_queue=4) as client:
        path = handed_in(client, *[{**CASE, "question": f"q{n}"} for n in range(10)])
        until(client, "/ready", lambda ready: ready["cases_in_flight"] == 3)
        time.sleep(0.1)
        assert engine.under_way == 3  # no more at once
        assert client.get(path).json()["status"] == "running"
        assert results(client, path) == []
        engine.gate.set()
        assert client.post("/verify", json=CASE).status_code == 200
        assert done(client, path)["counts"] == {"scored": 10}


def test_a_busy_service_is_waited_for(tmp_path: Path) -> None:
    engine = GatedEngine(writes, believes)
    with service(tmp_path, engine, jobs=JobSettings(in_flight=4), max_queue=2) as client:
        path = handed_in(client, *[{**CASE, "question": f"q{n}"} for n in range(6)])
        waiting = until(client, path, lambda job: bool(job["waiting_for"]))
        assert waiting["waiting_for"].startswith("room in the service: ")
        assert waiting["done"] == 0
        engine.gate.set()
        state = done(client, path)
        assert (state["counts"], state["failed"]) == ({"scored": 6}, 0)


def test_jobs_take_turns(tmp_path: Path) -> None:
    """A small job does not wait for the end of a large one."""
    with service(tmp_path, open_engine(delay_s=0.01), jobs=JobSettings(in_flight=2)) as client:
        large = handed_in(client, *[{**CASE, "question": f"q{n}"} for n in range(200)])
        small = handed_in(client, *[CASE] * 4)
        done(client, small)
        assert client.get(large).json()["done"] < 100
        assert [job["id"] for job in client.get("/jobs").json()["jobs"]] == [small[6:], large[6:]]
        assert client.delete(large).json()["status"] == "cancelled"


# ---- cancel, retry, forget -------------------------------------------------------------------------------------------


def test_what_is_being_judged_stops_when_a_job_is_cancelled(tmp_path: Path) -> None:
    engine = GatedEngine(writes, believes)
    with service(tmp_path, engine, jobs=JobSettings(in_flight=3)) as client:
        path = handed_in(client, *[CASE] * 5)
        until(client, "/ready", lambda ready: ready["cases_in_flight"] == 3)
        assert client.delete(path).json()["status"] == "cancelled"
        until(client, "/ready", lambda ready: ready["cases_in_flight"] == 0)
        assert engine.under_way == 0
        state = client.delete(path).json()  # again: nothing happens
        assert (state["status"], state["done"]) == ("cancelled", 0)
        assert state["ended"] < state["deleted_after"]

        engine.gate.set()
        assert client.post(f"{path}/retry").status_code == 202  # what was left is taken up
        assert done(client, path)["counts"] == {"scored": 5}
        assert client.delete(path).json()["status"] == "done"  # what has ended stays as it is


def test_what_an_outage_left_is_judged_again(tmp_path: Path) -> None:
    engine = open_engine()
    with service(tmp_path, engine) as client:
        path = handed_in(
            client, *[{**CASE, "question": f"{word} {n}"} for n in range(3) for word in QUESTIONS.values()]
        )
        assert done(client, path)["failed"] == 9
        before = {result["index"]: result for result in results(client, path)}
        engine.script = lambda text: writes(text.replace("trouble", "").replace("darkness", ""))
        assert client.post(f"{path}/retry").status_code == 202
        state = done(client, path)
        assert state["counts"] == {"scored": 9, "unparseable": 3}  # which would come out the same again
        made = {result["index"]: result for result in results(client, path)}
        assert len(results(client, path)) == 12
        assert all(made[n] == before[n] for n in made if before[n]["status"] in ("scored", "unparseable"))
        again = client.post(f"{path}/retry").json()
        assert (again["status"], again["counts"]) == ("done", state["counts"])


def test_a_job_is_forgotten_if_asked(tmp_path: Path) -> None:
    with service(tmp_path, open_engine(delay_s=0.05)) as client:
        running = handed_in(client, *[{**CASE, "question": f"q{n}"} for n in range(50)])
        ended = handed_in(client, CASE)
        done(client, ended)
        for path in (running, ended):
            assert client.delete(f"{path}?forget=true").status_code == 200
            assert client.get(path).status_code == 404
            assert client.get(f"{path}/results").status_code == 404
        time.sleep(0.2)
        assert [path.name for path in (tmp_path / "jobs").iterdir()] == [".lock"]


def test_old_jobs_are_deleted(tmp_path: Path) -> None:
    with service(tmp_path) as client:
        old, new = handed_in(client, CASE), handed_in(client, CASE)
        done(client, old)
        done(client, new)
    for file in (tmp_path / old[1:]).iterdir():
        os.utime(file, (time.time() - 8 * 86_400,) * 2)
    with service(tmp_path) as client:
        until(client, "/jobs", lambda reply: len(reply["jobs"]) == 1)
        assert client.get(new).json()["status"] == "done"
        assert not (tmp_path / old[1:]).exists()
    with service(tmp_path, jobs=JobSettings(retention_days=0)) as client:
        assert client.get(new).json()["deleted_after"] is None


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


# ---- whose they are --------------------------------------------------------------------------------------------------


def test_a_job_is_its_callers(tmp_path: Path) -> None:
    with service(tmp_path) as client:
        path_before_keys = handed_in(client, CASE)
    keys = KeyStore(tmp_path / FILE)
    mine = {"X-API-Key": keys.add("mine", [Scope.JUDGE])}
    other = {"X-API-Key": keys.add("other", [Scope.JUDGE])}
    watcher = {"X-API-Key": keys.add("watcher", [Scope.READ])}
    operator = {"X-API-Key": keys.add("operator", list(Scope))}
    with service(tmp_path, keys=keys) as client:
        path = client.post("/jobs", json={"cases": [CASE]}, headers=mine).headers["location"]
        for headers, seen in ((mine, True), (other, False), (watcher, True), (operator, True)):
            assert client.get(path, headers=headers).status_code == (200 if seen else 404)
            assert client.get(f"{path}/results", headers=headers).status_code == (200 if seen else 404)
            listed = [job["id"] for job in client.get("/jobs", headers=headers).json()["jobs"]]
            assert (path[6:] in listed) is seen
        for method, target in (("DELETE", path), ("POST", f"{path}/retry")):
            assert client.request(method, target, headers=mine).status_code in (200, 202)
            assert client.request(method, target, headers=other).status_code == 404
            assert client.request(method, target, headers=watcher).status_code == 403
            assert client.request(method, target, headers=operator).status_code == 404
        assert client.delete(path_before_keys, headers=other).status_code == 200


# ---- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["cases"]),
        ({"cases": []}, ["cases"]),
        ({"cases": "q"}, ["cases"]),
        ({"cases": [CASE, {"question": "q"}]}, ["cases.1.trace"]),
        ({"cases": [CASE, {"question": 5, "trace": "t"}]}, ["cases.1.question"]),
        ({"cases": [CASE, 5]}, ["cases.1"]),
        ({"cases": [CASE], "seed": -1}, ["seed"]),
        ({"cases": [CASE], "extra": 1}, ["extra"]),
        ([CASE], ["body"]),
        (5, ["body"]),
    ],
)
def test_the_field_is_named_as_it_was_sent(client: TestClient, body: object, fields: list[str]) -> None:
    response = client.post("/jobs", json=body)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == fields


def test_bad_lines_are_named_and_nothing_is_begun(client: TestClient) -> None:
    lines = [
        json.dumps(CASE),
        "{",
        json.dumps({"question": "q", "options": {"A": ""}}),
        "[1]",
        "[" * 4900,
        '{"question": "\\ud800", "trace": "t"}',
    ]
    response = client.post("/jobs", content="\n".join(lines), headers=LINES)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == [
        "line 2", "line 3: options.A", "line 3: trace", "line 4", "line 5", "line 6: question",
    ]  # fmt: skip
    assert client.get("/jobs").json() == {"jobs": []}


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", LINES, 422),
        (b"\n \n", LINES, 422),
        (b"\xff\xfe", LINES, 422),
        (b"junk\n" * 1000, LINES, 422),
        (b"{", {"Content-Type": "application/json"}, 422),
        (b"\xff", {"Content-Type": "application/json"}, 400),
        (b"[" * 9000, {"Content-Type": "application/json"}, 400),
        (b'{"cases": []}', {"Content-Type": "text/plain"}, 415),
        (b'{"cases": []}', {}, 415),
    ],
)
def test_what_cannot_be_read_is_refused(
    client: TestClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    response = client.post("/jobs", content=content, headers=headers)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"


CASES = st.lists(
    st.fixed_dictionaries({"question": JSON_VALUES | st.just("q")}, optional={"trace": JSON_VALUES | st.just("t")}),
    max_size=3,
)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with service(tmp_path_factory.mktemp("state")) as client:
        yield client


@given(
    body=JSON_VALUES | st.fixed_dictionaries({"cases": JSON_VALUES | CASES}, optional={"seed": JSON_VALUES}),
    kind=st.sampled_from(["application/json", "application/x-ndjson"]),
    cut=st.integers(0, 40),
)
def test_no_body_makes_an_error_of_our_own(lasting: TestClient, body: object, kind: str, cut: int) -> None:
    for content in (json.dumps(body), json.dumps(body)[:cut]):
        response = lasting.post("/jobs", content=content.encode(), headers={"Content-Type": kind})
        assert response.status_code in (202, 400, 413, 422), response.text
        if response.status_code == 202:
            lasting.delete(f"{response.headers['location']}?forget=true")
