import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from serve_fakes import CASE, INFO, app_of, judge_of, open_engine
from test_audit import full_disk

from configs.settings import AuditSettings, ServeSettings
from serve.app import create_app
from serve.audit import AuditLog
from serve.audit_store import AuditStore
from serve.schemas import Info, VerifyMany, VerifyOne
from serve.stores import Stores
from verifier.judge import Judge
from verifier.types import Case, Judgment

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app_of()) as client:
        yield client


def test_health(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}


def test_ready(client: TestClient) -> None:
    client.post("/verify", json=CASE)
    assert client.get("/ready").json() == {"status": "ready", "cases_in_flight": 0, "replicas": 1}


def test_info_tells_what_judges_and_how_good_it_is(client: TestClient) -> None:
    info = client.get("/info").json()
    assert Info.model_validate(info) == INFO
    assert info["quality"] == [{"metric": "AUROC", "value": 0.6}]
    assert "not a medical device" in info["notice"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 405),
        ("GET", "/page/", 404),
        ("POST", "/verfy", 404),
        ("GET", "/verify", 405),
        ("PUT", "/verify", 405),
        ("POST", "/health", 405),
    ],
)
def test_unknown_routes_and_methods_are_problems(client: TestClient, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == response.json()["status"] == status
    assert response.headers["content-type"] == PROBLEM
    assert response.json()["detail"]
    assert status != 405 or response.headers["allow"]


@pytest.mark.parametrize("path", ["/verify/", "/reward/", "/jobs/", "/health/"])
def test_no_redirect_leads_to_a_host_that_a_caller_named(client: TestClient, path: str) -> None:
    response = client.post(path, json=CASE, headers={"Host": "evil.example"}, follow_redirects=False)
    assert response.status_code == 404
    assert "location" not in response.headers


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_a_look_without_a_body_is_enough(client: TestClient, path: str) -> None:
    response = client.head(path)
    assert response.status_code == 200
    assert response.headers["content-length"] == client.get(path).headers["content-length"]
    assert "head" not in client.get("/openapi.json").json()["paths"][path]


@pytest.mark.parametrize(("rule", "status"), [("refuse", 503), ("tolerate", 200)])
def test_a_service_that_may_give_no_judgment_is_not_ready(tmp_path: Path, rule: str, status: int) -> None:
    settings = AuditSettings(when_unwritable=rule)  # type: ignore[arg-type]
    audit = AuditLog(AuditStore(tmp_path / "audit", settings), refuse=rule == "refuse")
    with TestClient(create_app(judge_of(), ServeSettings(), INFO, Stores(audit=audit))) as client:
        with full_disk():
            response = client.get("/ready")
            assert client.post("/verify", json=CASE).status_code == status
        assert response.status_code == status
        if status == 503:
            assert response.json()["type"] == "urn:medverify:problem:audit-unavailable"
            assert response.headers["retry-after"]
        assert client.get("/ready").status_code == 200  # there is room again
        assert client.post("/verify", json=CASE).json()["judgment_id"]


class BrokenJudge(Judge):
    async def verify(self, case: Case, seed: int | None = None) -> Judgment:
        raise RuntimeError("secret: /root/key")


@pytest.mark.parametrize("body", [CASE, {"cases": [CASE, CASE]}])
def test_an_error_of_our_own_is_a_problem_without_internals(body: dict[str, object]) -> None:
    with TestClient(app_of(judge_of(kind=BrokenJudge)), raise_server_exceptions=False) as client:
        response = client.post("/verify", json=body)
        assert response.status_code == 500
        assert response.headers["content-type"] == PROBLEM
        assert response.json()["type"] == "urn:medverify:problem:internal"
        assert "secret" not in response.text
        assert "RuntimeError" not in response.text
        assert client.get("/ready").json()["cases_in_flight"] == 0


def test_the_service_closes_what_it_was_given() -> None:
    engine = open_engine()
    judge = judge_of(engine)
    with TestClient(app_of(judge)):
        assert not engine.closed
    assert engine.closed
    assert judge.retriever.closed  # type: ignore[attr-defined]


# ---- the description -------------------------------------------------------------------------------------------------


def test_the_description_names_every_error(client: TestClient) -> None:
    responses = client.get("/openapi.json").json()["paths"]["/verify"]["post"]["responses"]
    assert set(responses) == {"200", "400", "401", "403", "408", "413", "422", "500", "503"}
    for status, response in responses.items():
        assert response["description"]
        assert set(response["content"]) == {"application/json" if status == "200" else PROBLEM}


def test_the_description_has_examples_that_work(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for kind in (VerifyOne, VerifyMany):
        for example in schemas[kind.__name__]["examples"]:
            assert client.post("/verify", json=example).status_code == 200


def test_the_description_resolves_and_explains_every_route(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    names = set(description["components"]["schemas"])
    references = [part.split('"')[0] for part in json.dumps(description).split('"#/components/schemas/')[1:]]
    assert set(references) <= names
    judging = {
        "/verify",
        "/verify/stream",
        "/reward",
        "/get_reward",
        "/slime",
        "/reward/slime",
        "/retrieve",
        "/get_observation",
    }
    assert judging | {"/judgments", "/judgments/{id}", "/health", "/ready", "/info"} <= set(description["paths"])
    assert all(route["description"] for path in description["paths"].values() for route in path.values())
    assert "not a medical device" in description["info"]["summary"]
    assert description["info"]["version"] == "1.2.3"


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_no_page_loads_scripts_from_elsewhere(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "/reward?seed=7",
        "/slime?accuracy_wieght=1",
        "/get_reward?weight=1",
        "/verify?accuracy=label",
        "/select?strategy=hard",
    ],
)
def test_what_the_address_says_and_nobody_reads_is_refused(client: TestClient, address: str) -> None:
    bodies = {
        "/verify": CASE,
        "/select": {"question": "q", "candidates": [{"trace": "t"}]},
        "/reward": {"items": [{"kind": "judge", "response": "<answer>1</answer>", "label": 1}]},
        "/slime": {"prompt": "q", "response": "r", "label": "A"},
        "/get_reward": {"query": [], "prompts": [], "labels": []},
    }
    path, _, query = address.partition("?")
    response = client.post(address, json=bodies[path])
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, query.partition("=")[0])
