"""Cache, audit log and `/judgments` behind a running application."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serve_fakes import CASE, INFO, GatedEngine, judge_of, open_engine

from configs.settings import AuditSettings, PathSettings, ServeSettings, Settings
from serve.app import create_app
from serve.keys import FILE, KeyStore, Scope
from serve.stores import Stores

PROBLEM = "application/problem+json"


@contextmanager
def serving(state: Path, engine: GatedEngine | None = None, **settings: Any) -> Iterator[TestClient]:
    chosen = Settings(serve=ServeSettings(**settings), paths=PathSettings(state=state))
    app = create_app(judge_of(engine), chosen.serve, INFO, Stores.of(chosen))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with serving(tmp_path) as client:
        yield client


def verify(client: TestClient, question: str = "q", **more: Any) -> dict[str, Any]:
    response = client.post("/verify", json={**CASE, "question": question, **more})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_an_answer_leads_to_its_evidence(client: TestClient) -> None:
    answer = verify(client, id="c1")
    found = client.get(f"/judgments/{answer['judgment_id']}").json()
    assert found["id"] == answer["judgment_id"]
    assert found["caller"] == "anonymous"
    for name in ("status", "verdict", "p_correct", "case_digest", "judge_id", "seed", "usage"):
        assert found[name] == answer[name]
    assert found["index_digest"] == "1" * 64
    assert found["cached"] is False
    assert found["texts"] is None
    (passage,) = found["searches"][0]["passages"]
    shown = answer["searches"][0]["passages"][0]
    assert (passage["id"], passage["score"]) == (shown["id"], shown["score"])
    assert passage["passage"]["text"] == shown["text"]


def test_the_same_case_is_judged_once(tmp_path: Path) -> None:
    engine = open_engine()
    with serving(tmp_path, engine) as client:
        first = verify(client, id="one")
        asked = len(engine.requests)
        second = verify(client, id="two")
        assert len(engine.requests) == asked
        assert second["id"] == "two"
        assert second["latency_ms"] is None
        assert second["judgment_id"] > first["judgment_id"]
        assert client.get(f"/judgments/{second['judgment_id']}").json()["cached"] is True
        same = ("status", "verdict", "p_correct", "reasoning", "case_digest", "seed", "judge_id", "usage")
        assert [second[name] for name in same] == [first[name] for name in same]
        verify(client, id="one", seed=7)
        assert len(engine.requests) > asked
    with serving(tmp_path, engine) as client:  # it outlives the process
        asked = len(engine.requests)
        assert verify(client)["p_correct"] == first["p_correct"]
        assert len(engine.requests) == asked


def test_a_failure_is_tried_again(tmp_path: Path) -> None:
    engine = open_engine()
    with serving(tmp_path, engine) as client:
        for _ in range(2):
            asked = len(engine.requests)
            assert verify(client, "trouble")["status"] == "engine_failed"
            assert len(engine.requests) > asked


def test_failures_are_in_the_log_as_failures(client: TestClient) -> None:
    failed = verify(client, "trouble")
    found = client.get(f"/judgments/{failed['judgment_id']}").json()
    assert (found["status"], found["verdict"], found["p_correct"]) == ("engine_failed", None, None)


def test_the_list_is_filtered_and_continued(client: TestClient) -> None:
    for number in range(6):
        verify(client, f"trouble {number}" if number % 2 else f"q{number}")
    everything = client.get("/judgments").json()
    assert [item["status"] for item in everything["judgments"]] == ["engine_failed", "scored"] * 3
    assert everything["next"] is None
    failed = client.get("/judgments", params={"status": "engine_failed"}).json()["judgments"]
    assert failed == everything["judgments"][::2]
    assert client.get("/judgments", params={"verdict": 1}).json()["judgments"] == everything["judgments"][1::2]
    assert client.get("/judgments", params={"verdict": 0}).json()["judgments"] == []
    page = client.get("/judgments", params={"limit": 4}).json()
    rest = client.get("/judgments", params={"limit": 4, "before": page["next"]}).json()
    assert page["judgments"] + rest["judgments"] == everything["judgments"]
    assert rest["next"] is None


@pytest.mark.parametrize("query", [{"status": "x"}, {"verdict": 2}, {"limit": 0}, {"limit": 501}, {"before": "x"}])
def test_a_query_that_does_not_fit_is_refused(client: TestClient, query: dict[str, Any]) -> None:
    response = client.get("/judgments", params=query)
    assert response.status_code == 422
    assert response.headers["content-type"] == PROBLEM
    assert response.json()["errors"][0]["field"] == next(iter(query))


@pytest.mark.parametrize(("id", "status"), [("0" * 26, 404), ("x", 422), ("..%2f..%2fetc%2fpasswd", 404)])
def test_an_id_that_nobody_gave_out(client: TestClient, id: str, status: int) -> None:
    verify(client)
    response = client.get(f"/judgments/{id}")
    assert response.status_code == status
    assert response.headers["content-type"] == PROBLEM


def test_callers_see_their_own(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / FILE)
    tokens = {name: keys.add(name, [Scope.JUDGE]) for name in ("one", "two")}
    tokens["dashboard"] = keys.add("dashboard", [Scope.READ])
    keys.close()
    headers = {name: {"X-API-Key": token} for name, token in tokens.items()}
    with serving(tmp_path) as client:
        made = {
            name: client.post("/verify", json={**CASE, "question": name}, headers=headers[name]).json()["judgment_id"]
            for name in ("one", "two")
        }
        seen = {
            name: [item["caller"] for item in client.get("/judgments", headers=headers[name]).json()["judgments"]]
            for name in headers
        }
        assert seen == {"one": ["one"], "two": ["two"], "dashboard": ["two", "one"]}
        asked = {
            (asking, of): client.get(f"/judgments/{made[of]}", headers=headers[asking]).status_code
            for asking in headers
            for of in made
        }
        assert {pair for pair, status in asked.items() if status == 200} == {
            ("one", "one"),
            ("two", "two"),
            ("dashboard", "one"),
            ("dashboard", "two"),
        }
        assert set(asked.values()) == {200, 404}  # another's judgment is as if it were none


def test_without_stores_the_service_judges_all_the_same(tmp_path: Path) -> None:
    with serving(tmp_path, audit=AuditSettings(enabled=False)) as client:
        answer = verify(client)
        assert answer["judgment_id"] is None
        assert client.get("/judgments").json() == {"judgments": [], "next": None}
        assert client.get(f"/judgments/{'0' * 26}").status_code == 404
    assert not (tmp_path / "audit").exists()
    with TestClient(create_app(judge_of(), ServeSettings(), INFO)) as client:
        assert verify(client)["status"] == "scored"


@pytest.mark.parametrize("rule", ["tolerate", "refuse"])
def test_a_full_disk_never_costs_a_judgment_that_was_asked_for_again(tmp_path: Path, rule: str) -> None:
    engine = open_engine()
    with serving(tmp_path, engine, audit=AuditSettings(when_unwritable=rule)) as client:  # type: ignore[arg-type]
        verify(client, "before")
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            response = client.post("/verify", json={**CASE, "question": "meanwhile"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, handler)
        if rule == "tolerate":
            assert response.status_code == 200
            assert (response.json()["status"], response.json()["judgment_id"]) == ("scored", None)
        else:
            assert response.status_code == 503
            assert response.headers["retry-after"]
            assert response.json()["type"] == "urn:medverify:problem:audit-unavailable"
        assert client.get("/ready").json()["cases_in_flight"] == 0
        answer = verify(client, "meanwhile")
        assert answer["judgment_id"]
