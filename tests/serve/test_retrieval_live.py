"""The retrieval server under load, over real sockets."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import httpx2
from live_server import listening
from search_fakes import DIGEST, WordRanker, hold, search_app

from serve.load import Connection

BODY = {"queries": ["warfarin"], "return_scores": True}


async def waiting(client: httpx2.AsyncClient) -> str:
    lines = (await client.get("/metrics")).text.splitlines()
    return next(line for line in lines if line.startswith("medverify_retrieval_waiting")).split()[1]


async def wait_for(client: httpx2.AsyncClient, count: int) -> None:
    async with asyncio.timeout(10):
        while await waiting(client) != f"{count}.0":  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.01)


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
