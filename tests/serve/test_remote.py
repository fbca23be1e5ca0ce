"""The client of a retrieval server, over real sockets."""

import asyncio
import gzip
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request, Response
from live_server import listening
from search_fakes import DIGEST, PASSAGES, WordRanker, hold, search_app

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


@asynccontextmanager
async def remote(url: str, **options: Any) -> AsyncIterator[RemoteRetriever]:
    retriever = await asyncio.to_thread(RemoteRetriever.connect, url, **options)
    try:
        yield retriever
    finally:
        await retriever.aclose()


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
        with pytest.raises(
            RetrievalError, match=r"HTTP 500: the search failed; the service's log has the reason.*; asked 2 times"
        ):
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
        (answer(b"[" * 100_000), "cannot be read: .*nested too deeply"),
        (
            answer(b'{"result": [[{"document": {"id": "a", "text": "b"}, "score": ' + b"9" * 5000 + b"}]]}"),
            "cannot be read",
        ),
        (
            answer(b'{"result": [[{"document": {"id": "a", "text": " \\u200b"}, "score": 1}]]}'),
            "no text that can be seen",
        ),
        (answer(b'{"result": [[]], "partial": true, "missing_rows": 5}'), "cannot be read"),
        (answer(b'{"result": [[]], "partial": true, "missing_rows": null}'), "cannot be read"),
        (answer(b'{"result": [[]], "partial": true, "missing_rows": [["a", "b"]]}'), "cannot be read"),
        (answer(b'{"result": [[]], "partial": true}'), r"without the rows \(\)"),
        (Response(b"[" * 100_000, status_code=400), r"HTTP 400: \[\["),
        (Response(b'{"detail": ' + b"[" * 900 + b"]" * 900 + b"}", status_code=400), "HTTP 400"),
        (Response(b"oh", status_code=400, headers={"Content-Type": "text/plain; charset=rot13"}), "HTTP 400: oh"),
        (Response(b"oh", headers={"Content-Encoding": "gzip", "X-Index-Digest": DIGEST}), "cannot be read: Decoding"),
        (Response(b"oh", status_code=503, headers={"Content-Encoding": "gzip"}), "cannot be read: Decoding"),
    ],
)
async def test_answers_that_are_none(reply: Response, complaint: str) -> None:
    app = stand_in(reply)
    async with listening(app) as url, remote(url) as retriever:
        with pytest.raises(RetrievalError, match=complaint):
            await retriever.search("fever", 3)
    assert len(app.state.asked) == 1


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"type": "urn:medverify:problem:rows-missing", "missing_rows": 5}',
        b'{"type": "urn:medverify:problem:rows-missing", "missing_rows": null}',
        b'{"type": [], "detail": {}}',
    ],
)
async def test_passing_troubles_that_cannot_be_read(status: int, body: bytes) -> None:
    async with listening(stand_in(Response(body, status_code=status))) as url, remote(url, retries=0) as retriever:
        with pytest.raises(RetrievalError, match=f"HTTP {status}: .*asked 1 times"):
            await retriever.search("fever", 3)


async def test_an_answer_that_unpacks_to_more_than_was_asked_for_is_not_unpacked() -> None:
    packed = gzip.compress(bytes(2**29), 1)
    app = stand_in(Response(packed, headers={"Content-Encoding": "gzip", "X-Index-Digest": DIGEST}))
    async with listening(app) as url, remote(url) as retriever:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(RetrievalError, match=f"more than {64 * 2**20} bytes"):
            await retriever.search("fever", 3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 2**10  # KiB


@pytest.mark.parametrize(
    "reply",
    [
        Response(b"[" * 100_000),
        Response(b"[" * 100_000, status_code=400),
        Response(b'{"digest": 3}'),
        Response(b"[]"),
        Response(b"oh", headers={"Content-Encoding": "gzip"}),
        Response(b"oh", status_code=400, headers={"Content-Type": "text/plain; charset=rot13"}),
        Response(status_code=302, headers={"Location": "http://["}),
    ],
)
async def test_a_server_that_does_not_say_what_it_holds(reply: Response) -> None:
    app = FastAPI()

    @app.get("/info")
    async def info() -> Response:
        return reply

    async with listening(app) as url:
        with pytest.raises(UnavailableError, match="does not tell its digest"):
            await asyncio.to_thread(RemoteRetriever.connect, url, retries=0)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
async def test_connecting_ends_in_time_however_slowly_the_server_drips(head: bytes) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        with suppress(OSError):
            while not reader.at_eof():
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        connecting = asyncio.to_thread(RemoteRetriever.connect, url, timeout_s=0.3)
        with pytest.raises(UnavailableError, match=r"no answer within 0\.3 s|does not tell"):
            await asyncio.wait_for(connecting, 10)
        await asyncio.wait_for(gone.wait(), 10)


async def test_connecting_works_where_an_event_loop_runs() -> None:
    with pytest.raises(UnavailableError, match="does not tell"):
        RemoteRetriever.connect("http://127.0.0.1:9", timeout_s=1)


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
