"""What could be read in two ways is refused, on every route: a key that is there twice, and a value of another type."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from reward_fakes import rewarding_app
from serve_fakes import CASE
from test_any_body import FITTING, JSON

from serve.stores import Stores

BODIES: dict[str, dict[str, Any]] = {
    **FITTING,
    "/verify": CASE,
    "/verify/stream": CASE,
    "/select": {"question": CASE["question"], "candidates": [{"trace": "It blocks VKOR."}], "strategy": "soft"},
    "/v1/rerank": {"query": "q", "documents": [{"text": "d"}]},
    "/v2/rerank": {"query": "q", "documents": [{"text": "d"}]},
    "/rerank": {"query": "q", "documents": [{"text": "d"}]},
    "/reward/slime": FITTING["/slime"],
    "/jobs": {"cases": [CASE], "seed": 0},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("state")
    with TestClient(rewarding_app(stores=Stores(jobs=folder / "jobs"), max_batch=8)) as client:
        yield client


def twice(body: Any) -> Iterator[tuple[str, str]]:
    """The body as JSON with one of its keys there twice, for every key at any depth; and the name of that key."""
    if isinstance(body, dict):
        for name, value in body.items():
            members = [f"{json.dumps(key)}: {json.dumps(other)}" for key, other in body.items()]
            yield name, "{" + ", ".join([*members, f"{json.dumps(name)}: {json.dumps(value)}"]) + "}"
            for key, within in twice(value):
                others = [f"{json.dumps(other)}: {json.dumps(body[other])}" for other in body if other != name]
                yield key, "{" + ", ".join([*others, f"{json.dumps(name)}: {within}"]) + "}"
    elif isinstance(body, list) and body:
        for key, within in twice(body[0]):
            yield key, "[" + ", ".join([within, *map(json.dumps, body[1:])]) + "]"


def test_every_route_with_a_body_is_among_these(client: TestClient) -> None:
    routes = client.get("/openapi.json").json()["paths"].items()
    assert set(BODIES) == {path for path, route in routes if "requestBody" in route.get("post", {})}


@pytest.mark.parametrize("path", BODIES)
def test_a_key_that_is_there_twice_is_named(client: TestClient, path: str) -> None:
    assert client.post(path, json=BODIES[path]).status_code in (200, 202)
    asked = 0
    for key, body in twice(BODIES[path]):
        response = client.post(path, content=body, headers=JSON)
        assert response.status_code == 422, body
        assert response.json()["type"] == "urn:medverify:problem:invalid-request"
        assert [fault["field"] for fault in response.json()["errors"]] == [key]
        assert "twice" in response.json()["detail"]
        asked += 1
    assert asked > 1


def test_a_line_of_a_job_is_read_as_strictly(client: TestClient) -> None:
    lines = f'{json.dumps(CASE)}\n{{"question": "q", "trace": "a", "trace": "b"}}\n'
    response = client.post("/jobs", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert response.status_code == 422
    assert response.json()["errors"] == [{"field": "line 2: trace", "expected": "one value: this key is there twice"}]


def test_a_key_that_is_no_text_can_still_be_named(client: TestClient) -> None:
    response = client.post("/verify", content='{"\\ud800": 1, "\\ud800": 2}', headers=JSON)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "?"


JUDGE_ITEM = {"kind": "judge", "id": "j", "response": "<answer>1</answer>", "label": 1}


@pytest.mark.parametrize(
    ("path", "changes", "field"),
    [
        *[(path, {"seed": True}, "seed") for path in ("/verify", "/verify/stream", "/select", "/reward", "/jobs")],
        *[(path, {"seed": 1.0}, "seed") for path in ("/verify", "/reward", "/jobs")],
        *[(path, {"deadline_s": "5"}, "deadline_s") for path in ("/verify", "/select", "/reward", "/v1/rerank")],
        *[(path, {"deadline_s": True}, "deadline_s") for path in ("/verify", "/select", "/reward", "/v1/rerank")],
        ("/verify", {"deadline_s": float("inf")}, "deadline_s"),
        ("/reward", {"items": [{**JUDGE_ITEM, "label": True}]}, "items.0.label"),
        ("/reward", {"items": [{**JUDGE_ITEM, "label": 1.0}]}, "items.0.label"),
        ("/reward", {"weights": {"accuracy": "1"}}, "weights.accuracy"),
        ("/reward", {"weights": {"accuracy": True}}, "weights.accuracy"),
        ("/v1/rerank", {"top_n": "1"}, "top_n"),
        ("/v1/rerank", {"top_n": True}, "top_n"),
        ("/v1/rerank", {"return_documents": "yes"}, "return_documents"),
        ("/get_observation", {"finish": ["no"]}, "finish.0"),
    ],
)
def test_another_type_is_not_read_as_the_right_one(
    client: TestClient, path: str, changes: dict[str, Any], field: str
) -> None:
    response = client.post(path, content=json.dumps({**BODIES[path], **changes}), headers=JSON)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == [field]


def test_whole_seconds_are_seconds(client: TestClient) -> None:
    assert client.post("/verify", json={**CASE, "deadline_s": 5}).json()["status"] == "scored"
    assert client.post("/reward", json={"items": [JUDGE_ITEM], "weights": {"accuracy": 1}}).status_code == 200


def test_an_address_has_its_numbers_as_text(client: TestClient) -> None:
    asked = client.post("/slime?seed=3&deadline_s=5&format_weight=1", json=FITTING["/slime"])
    assert asked.json()["score"] is not None


@pytest.mark.parametrize("body", ["[]", "3", '{"case": 3}', '{"cases": [3]}', '{"question": 3, "trace": "t"}'])
def test_what_is_no_object_is_told_without_our_names(client: TestClient, body: str) -> None:
    response = client.post("/verify", content=body, headers=JSON)
    assert response.status_code == 422
    told = response.text
    assert "object" in told
    assert not [name for name in ("Case", "VerifyOne", "VerifyMany", "Question", "instance") if name in told]


@pytest.mark.parametrize("line", [b"3", b"\xff", b'{"question": ' + b"9" * 5000 + b"}", b"[" * 100_000])
def test_a_line_that_is_no_case_is_told_without_our_names(client: TestClient, line: bytes) -> None:
    response = client.post("/jobs", content=line, headers={"Content-Type": "application/x-ndjson"})
    assert response.status_code == 422
    [fault] = response.json()["errors"]
    assert fault["field"] == "line 1"
    assert not [name for name in ("Case", "codec", "sys.", "limit", "instance") if name in fault["expected"]]
