"""A service that keeps jobs, and what asks it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from serve_fakes import INFO, judge_of

from configs.settings import JobSettings, ServeSettings
from serve.app import create_app
from serve.keys import KeyStore
from serve.stores import Stores
from verifier.engines.scripted import ScriptedEngine

LINES = {"Content-Type": "application/x-ndjson"}


@contextmanager
def service(
    state: Path | None, engine: ScriptedEngine | None = None, keys: KeyStore | None = None, **settings: Any
) -> Iterator[TestClient]:
    jobs = settings.pop("jobs", JobSettings())
    stores = Stores(keys=keys, jobs=state / "jobs" if state else None)
    serve = ServeSettings(retry_after_s=1, jobs=jobs, **{"max_body_bytes": 20_000, **settings})
    with TestClient(create_app(judge_of(engine), serve, INFO, stores)) as client:
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
