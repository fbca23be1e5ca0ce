"""When a retrieval server calls itself ready."""

import asyncio

import pytest
from fastapi.testclient import TestClient
from search_fakes import WordRanker, retriever_of, search_app

from retrieval.passage import DeadlineError, Hit, OverloadedError, RetrievalError, UnavailableError
from serve.known_rows import KnownRows


def test_ready_asks_again() -> None:
    ranker = WordRanker()
    app = search_app(ranker)
    with TestClient(app) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"status": "ready", "searches_waiting": 0}
        asked = len(ranker.batches)
        assert client.get("/ready").status_code == 200
        assert len(ranker.batches) == asked  # not on every call


@pytest.mark.parametrize("busy", [OverloadedError("full", 1.0), DeadlineError("too late")])
async def test_a_busy_service_stays_what_it_was(busy: RetrievalError, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = retriever_of(WordRanker())
    known = KnownRows(retriever, deadline_s=5, every_s=0)

    async def refuse(*_: object, **__: object) -> list[list[Hit]]:
        retriever.stats.stages["rank"].observe(1.0)  # another's search
        raise busy

    with monkeypatch.context() as held:
        held.setattr(retriever, "search_many", refuse)
        with pytest.raises(UnavailableError, match="could be asked for yet"):
            await known.check()  # not asked is not ready
    await known.check()
    monkeypatch.setattr(retriever, "search_many", refuse)
    for _ in range(3):
        await known.check()  # busy is not broken
    await retriever.aclose()


async def test_a_service_where_nothing_moves_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.known_rows.PATIENCE_S", 0.0)
    ranker = WordRanker()
    retriever = retriever_of(ranker)
    known = KnownRows(retriever, deadline_s=0.2, every_s=0)
    await known.check()
    ranker.gate.clear()
    await known.check()  # the new answer is not there yet, the last one was good

    async def poll() -> None:
        while True:
            await known.check()
            await asyncio.sleep(0.01)

    with pytest.raises(UnavailableError, match=r"no search was done in 0\.2 s"):
        await asyncio.wait_for(poll(), 10)
    ranker.gate.set()
    await known.check()
    await retriever.aclose()


async def test_a_cross_encoder_is_asked_less() -> None:
    ranker = WordRanker()
    ranker.profile = "rerank"
    retriever = retriever_of(ranker)
    await KnownRows(retriever, deadline_s=5).check()
    assert [len(batch) for batch in ranker.batches] == [2]
    await retriever.aclose()


def test_an_index_that_does_not_bring_back_its_own_passages_is_not_ready() -> None:
    ranker = WordRanker()
    ranker.blind = True
    with TestClient(search_app(ranker)) as client:
        response = client.get("/ready")
        assert response.status_code == 503
        assert response.headers["retry-after"]
        assert "of 5 passages that were asked for with their own text, 1 came back" in response.json()["detail"]
