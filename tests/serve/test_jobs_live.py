"""Jobs of real server processes: killed, restarted, out of disk."""

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

IN_FLIGHT = 4


def cases(count: int) -> dict[str, Any]:
    return {"cases": [{"id": f"c{n}", "question": f"Question {n}?", "trace": "It blocks VKOR."} for n in range(count)]}


@contextmanager
def running(state: Path, asked: Path | str = "-", delay_s: float = 0.0) -> Iterator[tuple[httpx2.Client, int]]:
    """A server process; gives a client of it and its process id, and kills it in the end."""
    script = str(Path(__file__).with_name("jobs_server.py"))
    command = [sys.executable, script, str(state), str(asked), str(delay_s)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        line = next(line for line in server.stderr if "Uvicorn running on" in line)
        drain = threading.Thread(target=server.stderr.read)  # or its log fills the pipe
        drain.start()
        try:
            with httpx2.Client(base_url=line.split("running on ")[1].split()[0], timeout=30) as client:
                yield client, server.pid
        finally:
            server.kill()
            drain.join()


def until(client: httpx2.Client, path: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        state: dict[str, Any] = client.get(path).json()
        if condition(state):
            return state
        time.sleep(0.02)
    raise AssertionError(f"it stays {state}")


def results(client: httpx2.Client, path: str) -> list[dict[str, Any]]:
    reply = client.get(f"{path}/results")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


def test_a_job_goes_on_after_a_kill(tmp_path: Path) -> None:
    state, asked = tmp_path / "state", tmp_path / "asked"
    with running(state, asked, 0.02) as (client, _):
        reply = client.post("/jobs", json={**cases(120), "seed": 7})
        assert reply.status_code == 202
        path = reply.headers["location"]
        half = until(client, path, lambda job: job["done"] >= 40)
        assert half["status"] == "running"
        assert half["seconds_left"] > 0
        while_running = results(client, path)
        assert 40 <= len(while_running) < 120
    # Killed. What a machine that stopped in the middle of a line would leave:
    [file] = (state / "jobs").glob("*/results.jsonl")
    before = [json.loads(line) for line in file.read_text().splitlines()]
    with file.open("ab") as torn:
        torn.write(b'{"index":119,"status":"scored","id":"c1')

    with running(state, asked, 0.02) as (client, _):
        kept = client.get(path).json()
        assert kept["done"] >= len(before)
        done = until(client, path, lambda job: job["status"] == "done")
        assert (done["done"], done["failed"], done["counts"]) == (120, 0, {"scored": 120})
        assert done["ended"] >= done["created"]
        made = results(client, path)
        assert made[: len(before)] == before  # what was there stays
        assert sorted(result["index"] for result in made) == list(range(120))
        assert all(result["id"] == f"c{result['index']}" for result in made)
        assert {result["seed"] for result in made} == {7}
        assert {result["p_correct"] for result in made} == {0.9}
    begun = asked.read_text().split()
    assert len(set(begun)) == 120
    assert len(begun) - 120 <= IN_FLIGHT  # judged twice: no more than what was in flight
    assert not list((state / "jobs").glob(".*.part"))


def test_a_cancelled_job_stays_cancelled_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, delay_s=0.02) as (client, _):
        path = client.post("/jobs", json=cases(100)).headers["location"]
        until(client, path, lambda job: job["done"] >= 5)
        cancelled = client.delete(path).json()
        assert cancelled["status"] == "cancelled"
        time.sleep(0.3)
        stopped = client.get(path).json()
        assert stopped["done"] <= cancelled["done"] + IN_FLIGHT
    with running(tmp_path, delay_s=0.02) as (client, _):
        assert client.get(path).json()["done"] == stopped["done"]
        time.sleep(0.3)
        after = client.get(path).json()
        assert [after[name] for name in ("status", "done")] == ["cancelled", stopped["done"]]
        assert len(results(client, path)) == stopped["done"]
        assert client.post(f"{path}/retry").status_code == 202  # it may be taken up again
        assert until(client, path, lambda job: job["status"] == "done")["counts"] == {"scored": 100}


def test_a_full_disk_makes_a_job_wait(tmp_path: Path) -> None:
    with running(tmp_path, delay_s=0.01) as (client, pid):
        path = client.post("/jobs", json=cases(80)).headers["location"]
        until(client, path, lambda job: job["done"] >= 3)
        [file] = (tmp_path / "jobs").glob("*/results.jsonl")
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (file.stat().st_size + 3000, hard))
        full = until(client, path, lambda job: bool(job["waiting_for"]))
        assert full["status"] == "running"
        assert full["waiting_for"] == "room for its results on the disk: File too large"
        assert 0 < full["done"] < 80
        assert file.read_bytes().endswith(b"}\n")  # nothing is left half-written
        assert len(results(client, path)) == full["done"]
        assert client.post("/verify", json=cases(1)["cases"][0]).json()["status"] == "scored"  # others are served
        time.sleep(1.5)
        assert client.get(path).json()["waiting_for"]

        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        done = until(client, path, lambda job: job["status"] == "done")
        assert (done["counts"], done["waiting_for"]) == ({"scored": 80}, None)
        assert sorted(result["index"] for result in results(client, path)) == list(range(80))


def test_a_job_that_does_not_fit_on_the_disk_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as (client, pid):
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4000, hard))
        lines = "".join(json.dumps(case) + "\n" for case in cases(500)["cases"])
        for reply in (
            client.post("/jobs", json=cases(500)),
            client.post("/jobs", content=lines, headers={"Content-Type": "application/x-ndjson"}),
        ):
            assert reply.status_code == 503
            assert reply.headers["retry-after"] == "1"
            assert reply.json()["detail"] == "nothing can be written down: File too large"
        assert client.get("/jobs").json() == {"jobs": []}
        assert [path.name for path in (tmp_path / "jobs").iterdir()] == [".lock"]


def test_two_processes_never_work_on_one_folder(tmp_path: Path) -> None:
    with running(tmp_path, delay_s=0.02) as (first, _):
        path = first.post("/jobs", json=cases(60)).headers["location"]
        with running(tmp_path, delay_s=0.02) as (second, _):
            for reply in (second.get(path), second.get("/jobs"), second.post("/jobs", json=cases(1))):
                assert reply.status_code == 503
                assert reply.headers["retry-after"]
            assert second.post("/verify", json=cases(1)["cases"][0]).status_code == 200
            until(first, path, lambda job: job["status"] == "done")
    with running(tmp_path) as (third, _):
        assert third.get(path).json()["status"] == "done"
