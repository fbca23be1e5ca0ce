import random
from collections.abc import Iterator
from typing import Any

import pytest
from choosing_fakes import QUESTION, choosing_app, trace
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from serve.rerank_schemas import RerankRequest

DOCUMENTS = [trace(None, 0.4), trace(None, 0.9), trace(None, 0.1)]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(choosing_app(retry_after_s=7)) as client:
        yield client


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_the_best_comes_first(client: TestClient, path: str) -> None:
    reply = client.post(path, json={"model": "any", "query": QUESTION, "documents": DOCUMENTS}).json()
    assert [result["index"] for result in reply["results"]] == [1, 0, 2]
    assert [result["relevance_score"] for result in reply["results"]] == pytest.approx([0.9, 0.4, 0.1])
    assert all("document" not in result for result in reply["results"])
    assert reply["model"] == "scripted"
    assert reply["id"]
    assert reply["usage"]["total_tokens"] > 0


def test_documents_come_back_if_asked_for(client: TestClient) -> None:
    body = {
        "query": QUESTION,
        "documents": [DOCUMENTS[0], {"text": DOCUMENTS[1], "title": "x"}],
        "top_n": 1,
        "return_documents": True,
        "max_chunks_per_doc": 3,
    }
    [result] = client.post("/v1/rerank", json=body).json()["results"]
    assert result["index"] == 1
    assert result["document"] == {"text": DOCUMENTS[1].strip()}


@pytest.mark.parametrize("top_n", [3, 30, None])
def test_there_are_never_more_results_than_documents(client: TestClient, top_n: int | None) -> None:
    reply = client.post("/v1/rerank", json={"query": QUESTION, "documents": DOCUMENTS, "top_n": top_n}).json()
    assert len(reply["results"]) == 3


def test_it_takes_a_deadline(client: TestClient) -> None:
    body = {"query": QUESTION, "documents": DOCUMENTS}
    assert client.post("/v1/rerank", json={**body, "deadline_s": 30}).status_code == 200
    refused = client.post("/v1/rerank", json={**body, "deadline_s": 0})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "deadline_s")


def test_one_that_was_not_judged_leaves_no_ranking(client: TestClient) -> None:
    body = {"query": QUESTION, "documents": [*DOCUMENTS, trace(None, None)], "top_n": 1}
    response = client.post("/v1/rerank", json=body)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "7"
    assert response.json()["type"] == "urn:medverify:problem:not-judged"
    assert response.json()["detail"].startswith("1 of 4 documents were not judged (unparseable: 1)")
    assert "relevance_score" not in response.text


@given(
    documents=st.lists(
        st.builds(trace, st.none(), st.sampled_from([0.2, 0.5, 0.8]), st.sampled_from("abcd")), min_size=1, max_size=10
    ),
    seed=st.integers(),
)
def test_order_changes_nothing(client: TestClient, documents: list[str], seed: int) -> None:
    def ranked(texts: list[str]) -> list[tuple[str, float]]:
        reply = client.post("/v1/rerank", json={"query": QUESTION, "documents": texts}).json()
        return [(texts[result["index"]], result["relevance_score"]) for result in reply["results"]]

    moved = documents.copy()
    random.Random(seed).shuffle(moved)
    assert ranked(moved) == ranked(documents)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["query", "documents"]),
        ({"query": "q", "documents": []}, ["documents"]),
        ({"query": "q", "documents": ["t", ""]}, ["documents.1.text"]),
        ({"query": "q", "documents": ["t", 5]}, ["documents.1"]),
        ({"query": "q", "documents": ["t"], "top_n": 0}, ["top_n"]),
        ({"query": " ", "documents": ["t"]}, ["query"]),
    ],
)
def test_what_does_not_fit_is_named(client: TestClient, body: dict[str, Any], fields: list[str]) -> None:
    response = client.post("/v1/rerank", json=body)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == fields


def test_examples_work(client: TestClient) -> None:
    [example] = RerankRequest.model_json_schema()["examples"]
    body = {**example, "documents": DOCUMENTS}
    assert client.post("/v1/rerank", json=body).status_code == 200
