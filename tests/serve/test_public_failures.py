"""What a failure tells callers, on every route: that it failed, and the request under which the log has the reason."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from job_fakes import LINES, done, results
from reward_fakes import ITEM, rewarding_app, rewarding_engine
from serve_fakes import CASE, OneBook
from test_peer_rewards import nemo_gym

from retrieval.passage import (
    DeadlineError,
    Hit,
    OverloadedError,
    PartialAnswerError,
    RetrievalError,
    UnavailableError,
)
from serve.stores import Stores
from verifier.engines.base import EngineError

ID = {"X-Request-ID": "step-7"}
INSIDE = ("10.0.0.7", "ConnectError", "weights.bin", "/srv", "RuntimeError")
REASON = "http://10.0.0.7:8000/v1 is away (ConnectError); RuntimeError('/srv/models/weights.bin')"


class AwayBook(OneBook):
    """Its searches fail with the error that the query names."""

    async def search(self, query: str, k: int) -> list[Hit]:
        match query:
            case "outage":
                raise RetrievalError(REASON)
            case "busy":
                raise OverloadedError(REASON, 3.0)
            case "late":
                raise DeadlineError(REASON)
            case "away":
                raise UnavailableError(REASON)
            case "rows":
                raise PartialAnswerError(REASON, [(0, 1)], [])
        return await OneBook.search(self, query, k)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    engine = rewarding_engine()
    scripted = engine.script
    engine.script = lambda text: EngineError(REASON) if "trouble" in text else scripted(text)
    folder: Path = tmp_path_factory.mktemp("state")
    app = rewarding_app(engine, AwayBook(), stores=Stores(jobs=folder / "jobs"))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def bodies(question: str) -> dict[str, dict[str, Any]]:
    return {
        "/verify": {**CASE, "question": question},
        "/verify/stream": {**CASE, "question": question},
        "/select": {"question": question, "candidates": [{"trace": "It blocks VKOR."}]},
        "/reward": {"items": [{**ITEM, "question": question}]},
        "/v1/rerank": {"query": question, "documents": ["It blocks VKOR."]},
        "/get_reward": {"query": [f"{question}\nIt blocks VKOR."], "prompts": [f"{question}\n"], "labels": ["A"]},
        "/slime": {"prompt": question, "response": "It blocks VKOR.", "label": "A"},
    }


@pytest.mark.parametrize("path", bodies(""))
@pytest.mark.parametrize(("question", "status"), [("trouble", "engine_failed"), ("darkness", "retrieval_failed")])
def test_a_judgment_that_failed_tells_nothing_of_the_inside(
    client: TestClient, path: str, question: str, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    response = client.post(path, json=bodies(question)[path], headers=ID)
    assert status in response.text
    assert not [word for word in INSIDE if word in response.text]
    if path != "/v1/rerank":  # which only counts
        assert "the service's log has the reason, under request step-7" in response.text
    assert "10.0.0.7" in caplog.text
    assert "weights.bin" in caplog.text


@pytest.mark.parametrize("question", ["trouble", "darkness"])
def test_so_it_is_for_nemo_gym(client: TestClient, question: str) -> None:
    rollout = client.post("/verify", json=nemo_gym(question), headers=ID).json()
    assert rollout["instance_config"]["mask_sample"] is True
    assert rollout["_ng_failure_judge_error"].endswith("under request step-7")
    assert not [word for word in INSIDE if word in json.dumps(rollout)]


def test_a_job_names_the_case_in_the_request_that_the_log_has(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    lines = "".join(json.dumps({**CASE, "question": question}) + "\n" for question in ("fine", "trouble", "darkness"))
    location = client.post("/jobs", content=lines, headers=LINES).headers["location"]
    done(client, location)
    found = {result["index"]: result for result in results(client, location)}
    id = location.rpartition("/")[2]
    assert found[1]["detail"] == f"the judge's engine failed; the service's log has the reason, under request {id}/1"
    assert found[2]["detail"] == f"a search failed; the service's log has the reason, under request {id}/2"
    assert not [word for word in INSIDE if word in client.get(f"{location}/results").text]
    assert "10.0.0.7" in caplog.text


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("outage", 500, "retrieval-failed"),
        ("busy", 503, "overloaded"),
        ("late", 503, "deadline"),
        ("away", 503, "unavailable"),
        ("rows", 503, "rows-missing"),
    ],
)
def test_searches_that_are_passed_through_tell_no_more(
    client: TestClient, query: str, status: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    action = f"<think>t</think><search>{query}</search>"
    for path, body in (
        ("/retrieve", {"query": query}),
        ("/get_observation", {"trajectory_ids": ["t"], "actions": [action]}),
    ):
        caplog.clear()
        response = client.post(path, json=body, headers=ID)
        assert (response.status_code, response.json()["type"].rpartition(":")[2]) == (status, kind)
        assert response.json()["detail"].endswith("the service's log has the reason, under request step-7")
        assert not [word for word in INSIDE if word in response.text]
        assert "10.0.0.7" in caplog.text
