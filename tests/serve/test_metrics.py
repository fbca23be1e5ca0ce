"""What operators see: metrics, the dashboard made from them, the log and spans."""

import json
import logging
import logging.config
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path

import httpx2
import pytest
from fastapi.testclient import TestClient
from live_server import listening
from prometheus_client.parser import text_string_to_metric_families
from serve_fakes import CASE, INFO, app_of, cases_of, judge_of, open_engine

from configs.settings import PathSettings, ServeSettings, Settings
from serve.app import create_app
from serve.keys import KeyStore, Scope
from serve.logs import log_config
from serve.request_ids import begin
from serve.stores import Stores

DASHBOARD = Path(__file__).parents[2] / "configs" / "grafana-dashboard.json"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(paths=PathSettings(state=tmp_path), serve=ServeSettings(max_batch=5))
    with TestClient(create_app(judge_of(), settings.serve, INFO, Stores.of(settings))) as client:
        yield client


def rows(client: TestClient) -> dict[str, float]:
    """Every row of `/metrics`: its name with its labels, and its value."""
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = dict[str, float]()
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name.removeprefix('medverify_')}{{{labels}}}"] = sample.value
    return found


def test_every_stage_and_outcome_is_counted(client: TestClient) -> None:
    failing = [{**CASE, "question": word} for word in ("trouble", "darkness")]
    assert client.post("/verify", json={"cases": [*cases_of(2), *failing, cases_of(1)[0]]}).status_code == 200
    assert client.post("/verify", json={"cases": cases_of(1)}).status_code == 200
    assert client.post("/verify", json={"cases": cases_of(6)}).status_code == 413
    found = rows(client)
    assert found["judgments_total{status=scored}"] == 4
    assert found["judgments_total{status=engine_failed}"] == found["judgments_total{status=retrieval_failed}"] == 1
    assert found["judgments_total{status=timeout}"] == 0
    assert found["coalesced_total{}"] == 1
    assert found["cached_total{}"] == found["cache_events_total{event=hits}"] == 1
    assert found["audited_total{outcome=written}"] == 6
    assert found["cases_in_flight{}"] == found["episodes{}"] == found["cases_waiting{}"] == found["draining{}"] == 0
    assert found["stage_seconds_count{stage=queue}"] == 4  # one for each episode
    assert found["stage_seconds_count{stage=think}"] == 2 + 2 + 1  # the one that finds nothing thought, too
    assert found["stage_seconds_count{stage=search}"] == found["stage_seconds_count{stage=verdict}"] == 2
    assert found["episode_seconds_count{}"] == 4
    assert 0 < found["stage_seconds_sum{stage=search}"] < found["episode_seconds_sum{}"]
    assert found["tokens_total{kind=policy}"] > 0
    assert found["http_answers_total{path=/verify,status=200}"] == 2
    assert found["http_answers_total{path=/verify,status=413}"] == 1
    assert found["http_answer_seconds_count{path=/verify}"] == 3
    assert any(row.startswith("judge_info{") and f"judge_id={INFO.judge_id}" in row for row in found)


def test_callers_make_no_rows(client: TestClient) -> None:
    for path in ("/secret-one", "/judgments/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/verify/../etc"):
        client.get(path)
    paths = {row.partition("path=")[2].partition(",")[0] for row in rows(client) if row.startswith("http_answers")}
    assert paths <= {"other", "/judgments/{id}"}


async def test_what_is_turned_away_and_what_waits_is_counted() -> None:
    engine = open_engine(max_sequences=1)
    engine.gate.clear()
    app = app_of(judge_of(engine), max_queue=2)
    async with listening(app) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        for case in cases_of(3):  # the first two wait in vain, and leave
            with pytest.raises(httpx2.TimeoutException):
                await client.post("/verify", json={"cases": [case]}, timeout=0.3)
        refusal = await client.post("/verify", json={"cases": cases_of(2) + cases_of(3)[2:]})
        assert refusal.status_code == 413
        text = (await client.get("/metrics")).text
    assert "medverify_cancelled_total 3.0" in text
    assert 'medverify_refused_cases_total{reason="full"} 0.0' in text


# ---- the dashboard ---------------------------------------------------------------------------------------------------


def test_the_dashboard_shows_what_there_is_and_all_of_it(client: TestClient) -> None:
    client.post("/verify", json=CASE)
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    there = {sample.name for family in families for sample in family.samples if sample.name.startswith("medverify_")}
    labels = {name for family in families for sample in family.samples for name in sample.labels} | {"job"}
    board = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shown = {name for expression in expressions for name in re.findall(r"medverify_\w+", expression)}
    assert shown <= there
    used = {
        name
        for expression in expressions
        for group in re.findall(r"by \(([^)]*)\)", expression)
        for name in group.split(", ")
    }
    used |= {
        name
        for panel in board["panels"]
        for t in panel["targets"]
        for name in re.findall(r"{{(\w+)}}", t["legendFormat"])
    }
    assert used <= labels

    def stem(name: str) -> str:
        return re.sub(r"_(bucket|sum|count|total|info|created)$", "", name)

    assert {stem(name) for name in shown} == {stem(name) for name in there}
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


# ---- the log ---------------------------------------------------------------------------------------------------------


@contextmanager
def json_log() -> Iterator[None]:
    """The log as the service sets it up, and afterwards as it was."""
    names = ["", *log_config("json")["loggers"]]
    before = [(logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names]
    logging.config.dictConfig(log_config("json"))
    try:
        yield
    finally:
        for name, (level, handlers) in zip(names, before, strict=True):
            logging.getLogger(name).setLevel(level)
            logging.getLogger(name).handlers[:] = handlers


def test_a_request_has_one_line_with_its_id_and_without_its_texts(
    client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    patient = {**CASE, "question": "Mrs Miller, 54, asks about trouble"}
    with json_log():
        client.post("/verify", json=patient, headers={"X-Request-ID": "step-7/a"})
        client.get("/nowhere/Miller?name=Miller")
    written = capsys.readouterr().err
    assert "Miller" not in written
    lines = [json.loads(line) for line in written.splitlines()]
    lines = [line for line in lines if line["logger"] == "serve.request_log"]
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("POST", "/verify", 200),
        ("GET", "other", 404),
    ]
    assert lines[0]["request_id"] == "step-7/a"
    assert lines[0]["seconds"] > 0
    assert lines[0]["level"] == "info"
    assert re.fullmatch(r"[0-9a-f]{32}", lines[1]["request_id"])


def test_an_error_is_logged_with_the_id_of_its_request(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        begin(b"r-1")
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("serve.any").exception("it broke")

    with json_log():
        copy_context().run(work)
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["message"], line["request_id"]) == ("error", "it broke", "r-1")
    assert line["error"].endswith("ValueError: broken")


def test_what_is_refused_is_counted_for_its_route(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has no key, or sends too much, does not come to the route; what it asked for is known all the same."""
    caplog.set_level(logging.INFO, "serve.request_log")
    stores = Stores(keys=KeyStore(tmp_path / "keys.sqlite"))
    key = {"Authorization": f"Bearer {stores.keys.add('all', list(Scope)) if stores.keys else ''}"}
    with TestClient(create_app(judge_of(), ServeSettings(max_body_bytes=1024), INFO, stores)) as client:
        assert client.post("/verify", json=CASE).status_code == 401
        assert client.get("/judgments/secret-id").status_code == 401
        assert client.delete("/verify").status_code == 401
        assert client.get("/secret").status_code == 401
        assert client.post("/verify", content=b"x" * 2000, headers=key).status_code == 413
        client.headers.update(key)
        counted = rows(client)
    for path, status in (("/verify", 401), ("/judgments/{id}", 401), ("/verify", 413), ("other", 401)):
        assert counted[f"http_answers_total{{path={path},status={status}}}"] >= 1
    assert "POST /verify 401" in caplog.text
    assert "GET /judgments/{id} 401" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        *[
            ("abc-1.2:3/x", True),
            ("x" * 128, True),
            ("x" * 129, False),
            ("", False),
            ("a b", False),
            ("a%0ab\t", False),
        ],
        *[("a" * 32, True), ("b" * 64, True), ("123e4567-e89b-12d3-a456-426614174000", True)],  # traces, digests, UUIDs
        *[("mv_" + "x" * 43, False), ("mv-" + "x" * 43, False), ("x" * 43, False)],  # as keys look
    ],
)
def test_the_id_of_a_request_is_returned(client: TestClient, sent: str, kept: bool) -> None:
    for path in ("/health", "/nowhere", "/verify"):
        returned = client.get(path, headers={"X-Request-ID": sent}).headers["x-request-id"]
        assert (returned == sent) is kept
        assert returned


def test_the_id_of_a_request_is_in_the_audit_log(client: TestClient) -> None:
    judgment = client.post("/verify", json=CASE, headers={"X-Request-ID": "step-8"}).json()
    assert client.get(f"/judgments/{judgment['judgment_id']}").json()["request_id"] == "step-8"
