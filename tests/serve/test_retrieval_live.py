"""The retrieval server and its client over real sockets."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request, Response
from search_fakes import DIGEST, PASSAGES, WordRanker, search_app
from serve_fakes import listening

from retrieval.passage import (
    DeadlineError,
    IndexMismatchError,
    OverloadedError,
    QueryError,
    RetrievalError,
    Retriever,
    UnavailableError,
)
from retrieval.remote import RemoteRetriever
from serve.load import Connection, run_load

BODY = {"queries": ["warfarin"], "return_scores": True}


@pytest.fixture
def ranker() -> Iterator[WordRanker]:
    ranker = WordRanker()
    yield ranker
    ranker.gate.set()


@asynccontextmanager
async def remote(url: str, **options: Any) -> AsyncIterator[RemoteRetriever]:
    retriever = await asyncio.to_thread(RemoteRetriever.connect, url, **options)
    try:
        yield retriever
    finally:
        await retriever.aclose()


async def hold(ranker: WordRanker, client: httpx2.AsyncClient) -> "asyncio.Task[httpx2.Response]":
    """Start a search and hold the worker in the middle of it."""
    ranker.gate.clear()
    ranker.busy.clear()
    task = asyncio.create_task(client.post("/retrieve", json={"query": "held"}))
    assert await asyncio.to_thread(ranker.busy.wait, 10)
    return task


async def waiting(client: httpx2.AsyncClient) -> str:
    lines = (await client.get("/metrics")).text.splitlines()
    return next(line for line in lines if line.startswith("medverify_retrieval_waiting")).split()[1]


async def wait_for(client: httpx2.AsyncClient, count: int) -> None:
    async with asyncio.timeout(10):
        while await waiting(client) != f"{count}.0":  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.01)


# ---- the server under load -------------------------------------------------------------------------------------------


async def test_clients_share_a_batch(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        first = await hold(ranker, client)
        calls = [asyncio.create_task(client.post("/retrieve", json={"query": f"q{n}"})) for n in range(20)]
        await wait_for(client, 20)
        ranker.gate.set()
        assert {reply.status_code for reply in await asyncio.gather(first, *calls)} == {200}
        assert [len(batch) for batch in ranker.batches] == [1, 20]


async def test_what_cannot_be_done_soon_is_503_and_never_429(ranker: WordRanker) -> None:
    async with listening(search_app(ranker, max_waiting=2)) as url, httpx2.AsyncClient(base_url=url) as client:
        first = await hold(ranker, client)
        calls = [asyncio.create_task(client.post("/retrieve", json={"query": f"q{n}"})) for n in range(2)]
        await wait_for(client, 2)
        refused = await client.post("/retrieve", json=BODY)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-index-digest"] == DIGEST
        assert refused.json()["type"] == "urn:medverify:problem:overloaded"
        tool = {"trajectory_ids": ["t"], "actions": ["<search>warfarin</search>"]}
        assert (await client.post("/get_observation", json=tool)).status_code == 503
        ranker.gate.set()
        assert {reply.status_code for reply in await asyncio.gather(first, *calls)} == {200}
        assert (await client.post("/retrieve", json=BODY)).status_code == 200


async def test_overload_ends_in_answers_and_503s_only(ranker: WordRanker) -> None:
    async with listening(search_app(ranker, max_waiting=50, cached_hits=0)) as url:
        connections = [Connection(url, 3) for _ in range(200)]
        for connection in connections:
            await connection.__aenter__()
        ranker.gate.clear()
        asked = asyncio.gather(*(connection.ask(f"query {n}") for n, connection in enumerate(connections)))
        await asyncio.sleep(0.2)
        ranker.gate.set()
        outcomes = Counter(await asked)
        assert set(outcomes) == {"200", "503"}
        assert outcomes["200"] >= 50
        for connection in connections:
            await connection.__aexit__(None, None, None)


async def test_a_client_that_leaves_frees_its_place(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        first = await hold(ranker, client)
        leaver = Connection(url, 3)
        await leaver.__aenter__()
        asking = asyncio.create_task(leaver.ask("nobody waits"))
        await wait_for(client, 1)
        await leaver.__aexit__(None, None, None)
        assert await asking == "ConnectionResetError"
        await wait_for(client, 0)
        ranker.gate.set()
        assert (await first).status_code == 200
        assert ranker.batches == [["held"]]
        assert "medverify_retrieval_abandoned_total 1.0" in (await client.get("/metrics")).text


async def test_a_deadline_is_503_and_costs_no_work(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        first = await hold(ranker, client)
        late = await client.post("/retrieve", json={"query": "late", "deadline_s": 0.05})
        assert late.status_code == 503
        assert late.headers["retry-after"]
        assert late.json()["type"] == "urn:medverify:problem:deadline"
        ranker.gate.set()
        await first
        assert ranker.batches == [["held"]]


def test_sigterm_finishes_what_is_under_way() -> None:
    command = [sys.executable, str(Path(__file__).with_name("held_search_server.py"))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        line = next(line for line in server.stderr if "Uvicorn running on" in line)
        url = line.split("running on ")[1].split()[0]
        replies: list[httpx2.Response] = []
        caller = threading.Thread(target=lambda: replies.append(httpx2.post(f"{url}/retrieve", json=BODY, timeout=30)))
        caller.start()
        while 'stage="queue"} 1.0' not in httpx2.get(f"{url}/metrics").text:
            pass
        server.send_signal(signal.SIGTERM)
        caller.join(timeout=30)
        log = server.stderr.read()
        assert server.wait(timeout=30) in (0, -signal.SIGTERM)
    assert [reply.status_code for reply in replies] == [200]
    assert "Application shutdown complete" in log
    assert "Traceback" not in log


# ---- the client ------------------------------------------------------------------------------------------------------


async def test_the_client_gives_what_the_index_gives() -> None:
    async with listening(search_app()) as url, remote(url) as retriever:
        contract: Retriever = retriever
        assert contract.digest == DIGEST
        hits = await contract.search("digoxin target", 2)
        assert [(hit.passage, hit.score, hit.rank) for hit in hits] == [(PASSAGES[3], 2.0, 1), (PASSAGES[0], 1.0, 2)]
        many = await retriever.search_many([f"{p.text.split()[0]}" for p in PASSAGES], 1)
        assert [hits[0].passage for hits in many] == list(PASSAGES)
        assert await retriever.search_many([], 3) == []


async def test_the_client_refuses_what_cannot_be_searched_for() -> None:
    async with listening(search_app(max_topk=4)) as url, remote(url) as retriever:
        for query, k, complaint in (("", 3, "empty"), ("a", 0, "k is 0"), ("a", 9, "topk is 9")):
            with pytest.raises(QueryError, match=complaint):
                await retriever.search(query, k)


async def test_the_client_raises_for_an_error_and_never_gives_nothing(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url, remote(url, retries=1) as retriever:
        with pytest.raises(RetrievalError, match=r"HTTP 500: .*device is gone.*; asked 2 times"):
            await retriever.search("outage", 3)
        assert len(ranker.batches) == 2


async def test_the_clients_deadline_covers_tries_and_waits(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        first = await hold(ranker, client)
        async with remote(url, timeout_s=0.3, retries=100) as retriever:
            with pytest.raises(DeadlineError, match=r"no answer within 0\.3 s"):
                await retriever.search("late", 3)
        ranker.gate.set()
        await first


def stand_in(*replies: Response) -> FastAPI:
    """A server that answers `/retrieve` with these, the last one for ever, and notes when it was asked."""
    app = FastAPI()
    app.state.asked = []

    @app.get("/info")
    async def info() -> dict[str, str]:
        return {"digest": DIGEST}

    @app.post("/retrieve")
    async def retrieve(request: Request) -> Response:
        app.state.asked.append(asyncio.get_running_loop().time())
        assert (await request.json())["deadline_s"] > 0
        return replies[min(len(app.state.asked), len(replies)) - 1]

    return app


def answer(body: bytes, digest: str = DIGEST) -> Response:
    return Response(body, headers={"X-Index-Digest": digest})


def hits(*scores: float) -> bytes:
    found = [{"document": {"id": f"{place}", "text": "b"}, "score": score} for place, score in enumerate(scores)]
    return json.dumps({"result": [found]}).encode()


def good(digest: str = DIGEST) -> Response:
    return answer(b'{"result": [[{"document": {"id": "a", "text": "b"}, "score": 1.5}]]}', digest)


async def test_the_client_comes_back_when_it_was_asked_to() -> None:
    app = stand_in(Response(status_code=503, headers={"Retry-After": "1"}), Response(status_code=502), good())
    async with listening(app) as url, remote(url) as retriever:
        [hit] = await retriever.search("fever", 3)
        assert (hit.passage.id, hit.score) == ("a", 1.5)
    first, second, third = app.state.asked
    assert second - first >= 1
    assert third > second


async def test_a_server_that_stays_busy() -> None:
    app = stand_in(Response(status_code=503))
    async with listening(app) as url, remote(url, retries=2) as retriever:
        with pytest.raises(OverloadedError, match="asked 3 times"):
            await retriever.search("fever", 3)
    assert len(app.state.asked) == 3


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("overloaded", OverloadedError),
        ("deadline", DeadlineError),
        ("unavailable", UnavailableError),
        ("something-new", OverloadedError),
    ],
)
async def test_what_kept_a_server_from_answering_is_told_by_type(kind: str, wanted: type[RetrievalError]) -> None:
    problem = {"type": f"urn:medverify:problem:{kind}", "detail": "so it is"}
    app = stand_in(Response(json.dumps(problem), status_code=503))
    async with listening(app) as url, remote(url, retries=0) as retriever:
        with pytest.raises(RetrievalError, match="so it is; asked 1 times") as caught:
            await retriever.search("fever", 3)
    assert type(caught.value) is wanted


async def test_a_wait_that_would_be_too_long_is_not_begun_and_its_reason_is_told() -> None:
    app = stand_in(Response(b"all full", status_code=503, headers={"Retry-After": "3600"}))
    async with listening(app) as url, remote(url) as retriever:
        with pytest.raises(DeadlineError, match=r"no answer within 30 s; the last try: .*all full") as caught:
            await asyncio.wait_for(retriever.search("fever", 3), 20)
    assert isinstance(caught.value.__cause__, OverloadedError)


async def test_connecting_waits_for_a_server_that_is_about_to_answer() -> None:
    app = FastAPI()
    asked = list[int]()

    @app.get("/info")
    async def info() -> Response:
        asked.append(1)
        return Response(status_code=502) if len(asked) < 3 else Response(json.dumps({"digest": DIGEST}))

    async with listening(app) as url, remote(url) as retriever:
        assert retriever.digest == DIGEST
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (Response(status_code=404), "HTTP 404"),
        (Response(status_code=429), "HTTP 429"),
        (answer(b"hello"), "cannot be read"),
        (answer(b'{"result": 3}'), "cannot be read"),
        (answer(b'{"result": [[{"document": {"id": "a"}, "score": 1}]]}'), "cannot be read"),
        (answer(b'{"result": [[{"document": {"id": "a", "text": "b"}, "score": null}]]}'), "cannot be read"),
        (answer(b'{"result": []}'), "1 queries were answered with 0 lists"),
        (answer(b'{"result": [[]]}'), "1 of them empty"),
        (answer(hits(4, 3, 2, 1)), "3 passages were asked for and 4 came"),
        (answer(hits(1, 2)), "not ordered by their scores"),
        (answer(hits(float("nan"), 1)), "not ordered by their scores"),
        (Response(hits(2, 1)), "does not say which index gave it"),
    ],
)
async def test_answers_that_are_none(reply: Response, complaint: str) -> None:
    app = stand_in(reply)
    async with listening(app) as url, remote(url) as retriever:
        with pytest.raises(RetrievalError, match=complaint):
            await retriever.search("fever", 3)
    assert len(app.state.asked) == 1


async def test_an_index_that_changes_under_a_run_is_refused() -> None:
    async with listening(stand_in(good(), good("e" * 64))) as url, remote(url) as retriever:
        await retriever.search("fever", 3)
        with pytest.raises(IndexMismatchError, match="restart what uses it"):
            await retriever.search("fever", 3)


async def test_a_lost_server_is_an_error() -> None:
    async with listening(search_app()) as url:
        retriever = await asyncio.to_thread(RemoteRetriever.connect, url, retries=1)
        assert await retriever.search("warfarin", 3)
    with pytest.raises(UnavailableError, match="asked 2 times"):
        await retriever.search("warfarin", 3)
    await retriever.aclose()
    with pytest.raises(UnavailableError, match="medverify retrieve serve"):
        await asyncio.to_thread(RemoteRetriever.connect, url, timeout_s=1)


def test_the_client_serves_one_event_loop_after_another() -> None:
    async def ask() -> None:
        async with listening(search_app()) as url, remote(url) as retriever:
            assert len(await retriever.search("warfarin", 2)) == 2

    for _ in range(2):
        asyncio.run(ask())


async def test_a_load_test_counts_answers_and_errors(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url:
        connections = [Connection(url, 3) for _ in range(4)]
        for connection in connections:
            await connection.__aenter__()
        queries = iter([*(f"query {n}" for n in range(40)), "outage"])
        load = await run_load([connection.ask for connection in connections], queries, 60)
        for connection in connections:
            await connection.__aexit__(None, None, None)
    assert load.outcomes == {"200": 40, "500": 1}
    assert (len(load.latencies), load.errors) == (40, 1)
    assert 0 < load.quantile_ms(0.5) <= load.quantile_ms(0.99)
    assert load.rate > 0


async def test_a_load_test_outlives_its_server_without_spinning() -> None:
    async with listening(search_app()) as url:
        connection = await Connection(url, 3).__aenter__()
        assert await connection.ask("warfarin") == "200"
    queries = iter(f"query {n}" for n in range(10**9))
    load = await run_load([connection.ask], queries, 0.2)
    assert set(load.outcomes) <= {"ConnectionRefusedError", "ConnectionResetError"}
    assert 0 < load.errors <= 20


async def test_a_load_test_makes_a_lost_connection_anew() -> None:
    async with listening(search_app()) as url:
        connection = await Connection(url, 3).__aenter__()
        await connection.__aexit__(None, None, None)
        assert await connection.ask("warfarin") == "200"
        await connection.__aexit__(None, None, None)


async def test_a_load_test_speaks_tls_where_it_is_asked_to() -> None:
    first = asyncio.get_running_loop().create_future()

    async def greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first.set_result(await reader.read(1))
        writer.close()

    async with await asyncio.start_server(greeted, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(ConnectionError):
            await Connection(f"https://{host}:{port}", 3).__aenter__()
    assert await first == b"\x16"  # the greeting of TLS, and nothing in plain text
