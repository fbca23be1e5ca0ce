"""Rows that cannot be searched: an error, unless somebody asked for what is left; and then it says so."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI, Response
from fastapi.testclient import TestClient
from live_server import listening
from search_fakes import WordRanker, retriever_of, search_app

from retrieval.passage import PartialAnswerError
from retrieval.ranker import MissingRowsError, Ranking
from retrieval.remote import RemoteRetriever

BODY: dict[str, Any] = {"queries": ["warfarin", "heparin"], "topk": 2, "return_scores": True}


class LossyRanker(WordRanker):
    """Loses the first two passages while `lost` is set."""

    lost = True

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        whole = super().rank(queries, 5)
        if not self.lost:
            return [Ranking(ranking.rows[:k], ranking.scores[:k]) for ranking in whole]
        left = [np.flatnonzero(ranking.rows >= 2)[:k] for ranking in whole]
        scores = np.stack([ranking.scores[kept] for ranking, kept in zip(whole, left, strict=True)])
        rows = np.stack([ranking.rows[kept] for ranking, kept in zip(whole, left, strict=True)])
        raise MissingRowsError("rows 0 to 1: the disk is gone", [(0, 2)], scores, rows)


@pytest.fixture
def ranker() -> LossyRanker:
    return LossyRanker()


@pytest.fixture
def client(ranker: LossyRanker) -> Iterator[TestClient]:
    with TestClient(search_app(ranker)) as client:
        yield client


def found(response: Any) -> list[list[str]]:
    return [[hit["document"]["id"] for hit in hits] for hits in response.json()["result"]]


def test_lost_rows_are_an_error_that_names_them(client: TestClient) -> None:
    response = client.post("/retrieve", json=BODY)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    problem = response.json()
    assert problem["type"] == "urn:medverify:problem:rows-missing"
    assert problem["missing_rows"] == [[0, 2]]
    assert "the disk is gone" in problem["detail"]
    assert "result" not in problem


def test_a_request_may_ask_for_what_is_left(client: TestClient) -> None:
    response = client.post("/retrieve", json={**BODY, "partial": True})
    assert response.status_code == 200
    assert response.json()["partial"] is True
    assert response.json()["missing_rows"] == [[0, 2]]
    assert found(response) == [["p2", "p3"], ["p2", "p3"]]


def test_a_partial_answer_is_not_remembered_and_a_whole_one_is_not_marked(
    client: TestClient, ranker: LossyRanker
) -> None:
    assert client.post("/retrieve", json={**BODY, "partial": True}).json()["partial"]
    ranker.lost = False
    whole = client.post("/retrieve", json={**BODY, "partial": True})
    assert list(whole.json()) == ["result"]
    assert found(whole) == [["p0", "p1"], ["p1", "p0"]]
    ranker.lost = True
    assert client.post("/retrieve", json=BODY).json() == whole.json()  # remembered: whole it was, and whole it is


def test_the_service_may_allow_it_for_all(ranker: LossyRanker) -> None:
    with TestClient(search_app(ranker, allow_partial=True)) as client:
        response = client.post("/retrieve", json={**BODY, "return_scores": False})
        assert response.status_code == 200
        assert response.json()["partial"] is True
        assert [[document["id"] for document in result] for result in response.json()["result"]] == [["p2", "p3"]] * 2
        # A tool server's client has nowhere to see that evidence is missing.
        assert client.post("/retrieve", json={**BODY, "partial": False}).status_code == 503
        actions = {"trajectory_ids": ["t"], "actions": ["<search>warfarin</search>"]}
        assert client.post("/get_observation", json=actions).status_code == 503
        assert client.get("/ready").status_code == 503


@pytest.mark.parametrize("queries", [["warfarin"], ["heparin", "warfarin"]])
def test_nothing_is_no_partial_answer(queries: list[str]) -> None:
    class Lost(WordRanker):
        """A search of a cluster whose shards are all gone."""

        def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
            if queries == ["heparin"]:
                return super().rank(queries, k)
            none = np.empty((len(queries), 0))
            raise MissingRowsError("rows 0 to 4: gone", [(0, 5)], none.astype(np.float32), none.astype(np.int64))

    with TestClient(search_app(Lost(), allow_partial=True)) as client:
        assert client.post("/retrieve", json={"query": "heparin"}).status_code == 200  # and is remembered
        response = client.post("/retrieve", json={"queries": queries, "partial": True})
        assert response.status_code == 503
        assert response.json()["missing_rows"] == [[0, 5]]
        assert "result" not in response.json()


async def test_the_client_never_takes_a_partial_answer_for_a_whole_one(ranker: LossyRanker) -> None:
    async with listening(search_app(ranker, allow_partial=True)) as url:
        remote = await asyncio.to_thread(RemoteRetriever.connect, url, retries=0)
        with pytest.raises(PartialAnswerError, match="the disk is gone") as caught:
            await remote.search("warfarin", 2)
        assert caught.value.missing == ((0, 2),)
        await remote.aclose()

    app = FastAPI()  # a server that marks its answer without being allowed to give one

    @app.post("/retrieve")
    async def retrieve(response: Response) -> dict[str, Any]:
        response.headers["X-Index-Digest"] = "d" * 64
        hit = {"document": {"id": "p2", "text": "t"}, "score": 1.0}
        return {"result": [[hit]], "partial": True, "missing_rows": [[0, 2]]}

    async with listening(app) as url:
        remote = RemoteRetriever(url, "d" * 64, retries=0)
        with pytest.raises(PartialAnswerError, match=r"without the rows \(\(0, 2\),\)"):
            await remote.search("warfarin", 2)
        await remote.aclose()


async def test_a_lost_shard_is_asked_once_for_a_batch_not_once_for_each_query(ranker: LossyRanker) -> None:
    retriever = retriever_of(ranker)
    with pytest.raises(PartialAnswerError) as caught:
        await retriever.search_many(["warfarin", "heparin", "aspirin"], 1)
    assert [[hit.passage.id for hit in hits] for hits in caught.value.hits] == [["p2"], ["p2"], ["p2"]]
    assert caught.value.missing == ((0, 2),)
    assert len(ranker.batches) == 1
    with pytest.raises(PartialAnswerError):
        await retriever.search("warfarin", 1)
    await retriever.aclose()
