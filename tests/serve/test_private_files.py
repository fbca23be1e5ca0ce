"""What a service keeps is its owner's alone: every folder and every file below the state folder, however it came to be."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from job_fakes import LINES, done
from serve_fakes import CASE, INFO, judge_of

from configs.settings import PathSettings, Settings
from serve.app import create_app
from serve.keys import Scope
from serve.stores import Stores


@pytest.fixture
def lax_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.mark.usefixtures("lax_umask")
def test_nobody_else_may_read_what_a_service_keeps(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    state = tmp_path / "var" / "state"
    settings = Settings(paths=PathSettings(state=state))
    stores = Stores.of(settings)
    assert stores.keys
    key = {"Authorization": f"Bearer {stores.keys.add('all', list(Scope))}"}
    with TestClient(create_app(judge_of(), settings.serve, INFO, stores)) as client:
        assert client.post("/verify", json=CASE, headers=key).json()["judgment_id"]
        location = client.post("/jobs", content=json.dumps(CASE), headers=key | LINES).headers["location"]
        client.headers.update(key)
        done(client, location)
        another = client.post("/jobs", json={"cases": [CASE, {**CASE, "trace": "trouble"}]}).headers["location"]
        done(client, another)
        client.post(f"{another}/retry")
        client.delete(another)
        kept = {path.relative_to(state).parts[0] for path in state.rglob("*")}
        assert {"keys.sqlite", "keys.in-force", "judgments.sqlite", "audit", "jobs"} <= kept
        for path in [state.parent, state, *state.rglob("*")]:
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    for path in state.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
