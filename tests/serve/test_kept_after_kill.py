"""A whole service, killed while it judges: whatever it had given is in its log and in its cache when it is back."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from serve_fakes import CASE

from serve.keys import FILE, KeyStore, Scope


@contextmanager
def running(state: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    command = [sys.executable, str(Path(__file__).with_name("stored_server.py")), str(state)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        line = next(line for line in server.stderr if "Uvicorn running on" in line)
        drain = threading.Thread(target=server.stderr.read)  # or its log fills the pipe
        drain.start()
        try:
            yield line.split("running on ")[1].split()[0], server
        finally:
            server.kill()
            drain.join()


def test_what_was_given_before_a_kill_is_kept(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / FILE)
    token = keys.add("trainer", list(Scope))
    headers = {"Authorization": f"Bearer {token}"}
    given: list[dict[str, Any]] = []

    with running(tmp_path) as (url, server):

        def ask_on() -> None:
            with httpx2.Client(base_url=url, headers=headers, timeout=30) as client:
                for number in range(10_000):
                    body = {**CASE, "question": f"question {number} of {threading.get_ident()}"}
                    try:
                        given.append({**client.post("/verify", json=body).json(), "question": body["question"]})
                    except httpx2.TransportError:
                        return

        callers = [threading.Thread(target=ask_on) for _ in range(4)]
        for caller in callers:
            caller.start()
        while len(given) < 60 and all(caller.is_alive() for caller in callers):
            time.sleep(0.01)
        server.kill()
        for caller in callers:
            caller.join()

    assert len(given) >= 60
    assert {answer["status"] for answer in given} == {"scored"}
    with running(tmp_path) as (url, _), httpx2.Client(base_url=url, headers=headers, timeout=30) as client:
        for answer in given:
            found = client.get(f"/judgments/{answer['judgment_id']}").json()
            assert (found["case_digest"], found["p_correct"]) == (answer["case_digest"], answer["p_correct"])
            assert found["searches"][0]["passages"][0]["passage"]["text"]
        again = [client.post("/verify", json={**CASE, "question": answer["question"]}).json() for answer in given]
        assert [answer["p_correct"] for answer in again] == [answer["p_correct"] for answer in given]
        # Written soon after the answer, so that what was on its way when the process died may be missing.
        assert sum(answer["latency_ms"] is None for answer in again) >= len(given) - 8
        assert min(answer["judgment_id"] for answer in again) > max(answer["judgment_id"] for answer in given)

        keys.revoke("trainer")
        assert client.post("/verify", json=CASE).status_code == 401
    keys.close()
