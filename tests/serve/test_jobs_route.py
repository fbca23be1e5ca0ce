import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from job_fakes import LINES, done, handed_in, results, service, until
from live_server import listening
from serve_fakes import CASE, INFO, GatedEngine, believes, judge_of, open_engine, writes

from configs.settings import JobSettings, ServeSettings
from serve.app import create_app
from serve.keys import FILE, KeyStore, Scope
from serve.stores import Stores
from verifier.types import Judgment

QUESTIONS = {"scored": "q", "unparseable": "silence", "engine_failed": "trouble", "retrieval_failed": "darkness"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with service(tmp_path) as client:
        yield client


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


# ---- in a service that is full, or about to stop ----------------------------------------------------------------------


async def test_a_case_that_got_no_place_in_time_waits_on(tmp_path: Path) -> None:
    """It has not had its turn: that is no result."""
    judge = judge_of(open_engine(max_sequences=1), deadline_s=0.3)
    app = create_app(judge, ServeSettings(), INFO, Stores(jobs=tmp_path / "jobs"))
    async with listening(app) as url, httpx2.AsyncClient(base_url=url) as client:
        places = app.state.judging.places
        held = asyncio.get_running_loop().create_future()
        places.line_up("somebody", held)
        path = (await client.post("/jobs", json={"cases": [CASE]})).headers["location"]

        async def state() -> dict[str, Any]:
            found: dict[str, Any] = (await client.get(path)).json()
            return found

        async with asyncio.timeout(10):
            while (await state())["waiting_for"] != "room in the service: no place in the engine within 0.3 s":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.7)  # more than one deadline
        assert ((await state())["done"], (await client.get(f"{path}/results")).text) == (0, "")
        places.give_back()
        async with asyncio.timeout(10):
            while (await state())["status"] != "done":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (await state())["counts"] == {"scored": 1}


def test_a_case_that_had_its_turn_and_was_late_is_a_result(tmp_path: Path) -> None:
    judge = judge_of(open_engine(delay_s=5), deadline_s=0.1)
    app = create_app(judge, ServeSettings(), INFO, Stores(jobs=tmp_path / "jobs"))
    with TestClient(app) as client:
        assert done(client, handed_in(client, CASE))["counts"] == {"timeout": 1}


def test_a_service_that_is_about_to_stop_takes_no_job(tmp_path: Path) -> None:
    app = create_app(judge_of(), ServeSettings(), INFO, Stores(jobs=tmp_path / "jobs"))
    with TestClient(app) as client:
        path = handed_in(client, {**CASE, "question": "trouble"})
        done(client, path)
        app.state.judging.begin_drain()
        for refused in (client.post("/jobs", json={"cases": [CASE]}), client.post(f"{path}/retry")):
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert refused.json()["type"] == "urn:medverify:problem:draining"
        assert len(client.get("/jobs").json()["jobs"]) == 1  # what there is can be looked at
