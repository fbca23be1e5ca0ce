"""`/retrieve` and `/get_observation` on the judge's service: the judge's own retriever, whichever it is, behind both."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from live_server import listening
from reward_fakes import ITEM, RIGHT, rewarding_app
from search_fakes import DIGEST, DRUGS, WordRanker, hold, retriever_of, search_app
from serve_fakes import OneBook

from configs.settings import RetrieveSettings
from retrieval.passage import Hit, PartialAnswerError
from retrieval.remote import RemoteRetriever
from retrieval.serial import SerialRetriever

QUERIES = ["heparin target", "digoxin"]
ACTION = "<think>Which?</think><search>heparin target</search>"


def observe(*actions: str) -> dict[str, Any]:
    return {"trajectory_ids": [str(place) for place, _ in enumerate(actions)], "actions": list(actions)}


@pytest.fixture
def searches(ranker: WordRanker) -> Iterator[TestClient]:
    """The retrieval service over the same passages."""
    with TestClient(search_app()) as client:
        yield client


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("scores", [False, True])
def test_both_services_answer_alike(ranker: WordRanker, searches: TestClient, serial: bool, scores: bool) -> None:
    local = retriever_of(ranker)
    with TestClient(rewarding_app(retriever=SerialRetriever(local) if serial else local)) as client:
        for body in (
            {"queries": QUERIES, "topk": 2, "return_scores": scores},
            {"query": QUERIES[0], "return_scores": scores},
            {"queries": [], "return_scores": scores},
        ):
            there, here = searches.post("/retrieve", json=body), client.post("/retrieve", json=body)
            assert here.status_code == 200
            assert here.headers["x-index-digest"] == DIGEST
            assert here.content == there.content
        body = observe(ACTION, "<think>done</think><answer>1</answer>", "nothing")
        there, here = (one.post("/get_observation", json=body) for one in (searches, client))
        assert here.status_code == 200
        assert here.headers["x-index-digest"] == DIGEST
        assert here.json() | {"processing_time_ms": 0} == there.json() | {"processing_time_ms": 0}


async def test_a_judge_whose_index_is_elsewhere(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url:
        remote = await asyncio.to_thread(RemoteRetriever.connect, url)
        async with listening(rewarding_app(retriever=remote)) as service, httpx2.AsyncClient(timeout=30) as client:
            body = {"queries": QUERIES, "topk": len(DRUGS), "return_scores": True}
            here, there = [await client.post(f"{at}/retrieve", json=body) for at in (service, url)]
            assert here.json() == there.json()
            seen = await client.post(f"{service}/get_observation", json=observe(ACTION))
            assert "heparin has target number 1" in seen.json()["observations"][0]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/retrieve", {"queries": ["warfarin", "outage"]}),
        ("/get_observation", observe(ACTION, "<think>t</think><search>outage</search>")),
    ],
)
@pytest.mark.parametrize("local", [False, True])
def test_an_outage_is_an_error_and_never_an_empty_result(
    ranker: WordRanker, path: str, body: dict[str, Any], local: bool
) -> None:
    with TestClient(rewarding_app(retriever=retriever_of(ranker) if local else OneBook())) as client:
        response = client.post(path, json=body)
        assert response.status_code == 500
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["type"] == "urn:medverify:problem:retrieval-failed"
        assert not {"result", "observations"} & set(response.json())


class SlowBook(OneBook):
    async def search(self, query: str, k: int) -> list[Hit]:
        await asyncio.sleep(5)
        return await OneBook.search(self, query, k)


@pytest.mark.parametrize("body", [{"query": "q"}, {"queries": ["q", "r"]}, {"query": "q", "deadline_s": 60}])
def test_a_search_that_takes_too_long(body: dict[str, Any]) -> None:
    app = rewarding_app(retriever=SlowBook(), retrieve=RetrieveSettings(deadline_s=0.05))
    with TestClient(app) as client:
        response = client.post("/retrieve", json=body)
        assert response.status_code == 503
        assert response.json()["type"] == "urn:medverify:problem:deadline"
        assert response.headers["retry-after"] == "1"


async def test_a_full_queue(ranker: WordRanker) -> None:
    retriever = retriever_of(ranker, max_waiting=1)
    async with listening(rewarding_app(retriever=retriever)) as url, httpx2.AsyncClient(base_url=url) as client:
        held = await hold(ranker, client)
        response = await client.post("/retrieve", json={"queries": QUERIES})
        assert response.status_code == 503
        assert response.json()["type"] == "urn:medverify:problem:overloaded"
        assert int(response.headers["retry-after"]) >= 1
        ranker.gate.set()
        assert (await held).status_code == 200


class LostRows(OneBook):
    """An index on several machines of which one is gone; an answer holds what the others gave, or nothing at all."""

    def __init__(self, *found: Sequence[Hit]) -> None:
        super().__init__()
        self.found = found

    async def search_many(self, queries: Sequence[str], k: int, *, deadline_s: float | None = None) -> list[list[Hit]]:
        raise PartialAnswerError("rows are missing", [(3, 5)], self.found)


async def test_a_part_of_an_answer_is_given_to_those_who_ask_for_it() -> None:
    [hit] = await OneBook().search("q", 1)
    with TestClient(rewarding_app(retriever=LostRows([hit]))) as client:
        assert client.post("/retrieve", json={"query": "q"}).json()["missing_rows"] == [[3, 5]]
        part = client.post("/retrieve", json={"query": "q", "partial": True}).json()
        assert (len(part["result"][0]), part["partial"], part["missing_rows"]) == (1, True, [[3, 5]])
    for nothing in (LostRows(), LostRows([])):
        with TestClient(rewarding_app(retriever=nothing)) as client:
            assert client.post("/retrieve", json={"query": "q", "partial": True}).status_code == 503


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/retrieve", {}, 422),
        ("/retrieve", {"query": ""}, 422),
        ("/retrieve", {"query": "q", "topk": 101}, 422),
        ("/retrieve", {"queries": ["q"] * 1025}, 413),
        ("/get_observation", {}, 422),
    ],
)
def test_limits_are_those_of_the_retrieval_service(path: str, body: dict[str, Any], status: int) -> None:
    with TestClient(rewarding_app()) as client:
        response = client.post(path, json=body)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"


def test_the_judge_searches_with_the_same_retriever(ranker: WordRanker) -> None:
    with TestClient(rewarding_app(retriever=retriever_of(ranker))) as client:
        body = {"items": [ITEM], "weights": {"accuracy": 1}}
        [reward] = client.post("/reward", json=body).json()["rewards"]
        assert reward["reward"] == pytest.approx(RIGHT)
        client.post("/retrieve", json={"query": "warfarin target"})
    assert ranker.batches == [["warfarin target"]]  # the second time it is remembered
