"""Whatever is sent to a route that rewards or searches: an answer or a refusal, never a fault of the service."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from job_fakes import service
from reward_fakes import ITEM, rewarding_app
from test_peer_rewards import nemo_gym

JSON = {"Content-Type": "application/json"}
NAMES = st.sampled_from(
    [
        *("items", "kind", "case", "id", "question", "options", "trace", "label", "seed", "weights", "accuracy"),
        *("coherence", "format", "deadline_s", "response", "query", "queries", "prompts", "labels", "prompt", "topk"),
        *("responses_create_params", "input", "output", "role", "content", "text", "type", "instance_config"),
        *("trajectory_ids", "actions", "extra_fields", "finish", "return_scores", "A", "steps", "expected_answer"),
    ]
)
WORDS = st.sampled_from(
    ["trace", "judge", "verifier", "label", "user", "assistant", "message", "A", "", "\ud800", "\0"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=20)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=6)
)
#: Bodies that fit, with anything in the place of some of their fields.
FITTING: dict[str, dict[str, Any]] = {
    "/reward": {"items": [ITEM, {"kind": "judge", "response": "<answer>1</answer>", "label": 1}], "seed": 0},
    "/get_reward": {"query": ["q r"], "prompts": ["q"], "labels": ["A"]},
    "/slime": {"prompt": [{"role": "user", "content": "q"}], "response": "r", "label": "A"},
    "/verify": nemo_gym(options={"A": "x"}, instance_config={}, label="A"),
    "/retrieve": {"queries": ["q"], "topk": 3, "return_scores": True},
    "/get_observation": {"trajectory_ids": ["t"], "actions": ["<think>t</think><search>q</search>"], "finish": [False]},
}


@st.composite
def spoilt(draw: st.DrawFn, body: Any) -> Any:
    """The body with something else in it somewhere, or in several places."""
    if isinstance(body, dict | list) and body and draw(st.integers(0, 4)):
        places = list(body) if isinstance(body, dict) else list(range(len(body)))
        changed = draw(st.lists(st.sampled_from(places), min_size=1, max_size=2, unique=True))
        copy: Any = dict(body) if isinstance(body, dict) else list(body)
        for place in changed:
            copy[place] = draw(spoilt(body[place]))
        if isinstance(copy, dict) and draw(st.booleans()):
            copy |= draw(st.dictionaries(NAMES, ANYTHING, max_size=2))
        return copy
    return draw(ANYTHING)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(rewarding_app(max_batch=8)) as client:
        yield client


@pytest.mark.parametrize("path", FITTING)
def test_the_bodies_fit(client: TestClient, path: str) -> None:
    assert client.post(path, json=FITTING[path]).status_code == 200


@pytest.mark.parametrize("path", [*FITTING, "/reward/slime"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_body_is_a_fault_of_ours(client: TestClient, path: str, data: st.DataObject) -> None:
    """The client raises whatever the service did not foresee."""
    fitting = FITTING["/slime" if path == "/reward/slime" else path]
    body = data.draw(ANYTHING | spoilt(fitting))
    response = client.post(path, content=json.dumps(body).encode(), headers=JSON)
    assert response.status_code in (200, 400, 413, 422, 503), response.text
    if response.status_code != 200:
        assert response.headers["content-type"] == "application/problem+json"
        assert not {"reward", "rewards", "score", "scores", "result"} & set(response.json())
    else:
        json.loads(response.text, parse_constant=pytest.fail)  # NaN is no JSON


EMPTY = [{}] * 30_000
#: Bodies in which nearly everything is a fault.
FAULTY: list[tuple[str, Any]] = [
    ("/verify", {"question": "q", "trace": EMPTY}),
    ("/verify", {"cases": EMPTY}),
    ("/verify", {"question": "q", "trace": "t", **{f"x{number}": 0 for number in range(9_000)}}),
    ("/verify", {"question": "q", "trace": "t", "options": {f"x{number}": "" for number in range(9_000)}}),
    ("/reward", {"items": EMPTY}),
    ("/select", {"question": "q", "candidates": EMPTY}),
    ("/v1/rerank", {"query": "q", "documents": EMPTY}),
    ("/jobs", {"cases": EMPTY}),
    ("/get_reward", {"query": EMPTY, "prompts": EMPTY}),
    ("/retrieve", {"queries": EMPTY}),
    ("/get_observation", {"trajectory_ids": EMPTY, "actions": EMPTY, "finish": EMPTY, "extra_fields": [0] * 9_000}),
]


@pytest.mark.parametrize(("path", "body"), FAULTY)
def test_a_body_of_faults_is_refused_in_few_words(tmp_path: Path, path: str, body: Any) -> None:
    """Each fault costs time, in which nobody else is served."""
    with service(tmp_path, max_body_bytes=1_000_000) as client:
        response = client.post(path, json=body)
    assert response.status_code == 422
    assert len(response.content) < 10_000
    assert 1 <= len(response.json()["errors"]) <= 20


def test_an_object_without_end_cannot_be_read(client: TestClient) -> None:
    body = {"question": "q", "trace": "t", **{f"x{number}": 0 for number in range(10_000)}}
    assert client.post("/verify", json=body).status_code == 400


@pytest.mark.parametrize("kind", ["x", 5, ["trace"], None])
def test_a_kind_that_there_is_not(client: TestClient, kind: Any) -> None:
    response = client.post("/reward", json={"items": [{**ITEM, "kind": kind}]})
    assert response.status_code == 422
    [fault] = response.json()["errors"]
    assert fault == {"field": "items.0", "expected": "Input should be of one of the kinds 'trace', 'judge'"}
