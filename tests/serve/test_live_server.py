import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
from live_server import listening
from serve_fakes import CASE, GatedEngine, app_of, believes, cases_of, judge_of, until, writes

from verifier.types import Judgment

PROBLEM = "application/problem+json"


def gated() -> GatedEngine:
    return GatedEngine(writes, believes)


async def in_flight(client: httpx2.AsyncClient) -> int:
    count: int = (await client.get("/ready")).json()["cases_in_flight"]
    return count


async def test_requests_in_flight_share_the_engine() -> None:
    """Twenty callers at once are twenty generations at once, not a queue of them."""
    engine = gated()
    async with listening(app_of(judge_of(engine))) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        calls = [
            asyncio.create_task(client.post("/verify", json={"id": f"c{i}", **case}))
            for i, case in enumerate(cases_of(20))
        ]
        await until(lambda: engine.under_way == 20)
        assert await in_flight(client) == 20  # and the event loop is free to answer others
        engine.gate.set()
        replies = await asyncio.gather(*calls)
        assert [Judgment.model_validate(reply.json()).id for reply in replies] == [f"c{i}" for i in range(20)]
        assert engine.most == 20
        assert await in_flight(client) == 0
        assert all(sequence.closed for sequence in engine.sequences)


async def test_what_cannot_be_done_soon_is_refused_and_the_service_recovers() -> None:
    engine = gated()
    app = app_of(judge_of(engine), max_queue=3, retry_after_s=7)
    async with listening(app) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        one = asyncio.create_task(client.post("/verify", json=CASE))
        await until(lambda: engine.under_way == 1)
        refused = await client.post("/verify", json={"cases": [CASE] * 3})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "7"
        assert refused.headers["content-type"] == PROBLEM
        assert refused.json()["type"] == "urn:medverify:problem:overloaded"
        assert refused.json()["detail"] == "1 cases are in flight and 3 more exceed the limit of 3"
        assert engine.under_way == 1  # nothing of it was begun

        two = asyncio.create_task(client.post("/verify", json={"cases": cases_of(2)}))
        await until(lambda: engine.under_way == 3)
        assert (await client.post("/verify", json=CASE)).status_code == 503
        assert (await client.post("/verify", json={"question": "q"})).status_code == 422

        engine.gate.set()
        assert (await one).json()["verdict"] == 1
        assert len((await two).json()["judgments"]) == 2
        assert (await client.post("/verify", json={"cases": [CASE] * 3})).status_code == 200
        assert await in_flight(client) == 0


async def test_a_client_that_leaves_stops_costing() -> None:
    engine = gated()
    body = b'{"cases": [{"question": "q", "trace": "t"}, {"question": "r", "trace": "t"}]}'
    head = b"POST /verify HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    async with listening(app_of(judge_of(engine))) as url, httpx2.AsyncClient(base_url=url) as client:
        _, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(url).port)
        writer.write(head + body)
        await until(lambda: engine.under_way == 2)
        writer.close()
        await until(lambda: engine.under_way == 0)
        assert [sequence.closed for sequence in engine.sequences] == [True, True]
        assert await in_flight(client) == 0

        engine.gate.set()
        assert (await client.post("/verify", json=CASE)).status_code == 200


async def test_a_client_that_runs_out_of_patience_leaves_too() -> None:
    engine = gated()
    async with listening(app_of(judge_of(engine))) as url, httpx2.AsyncClient(base_url=url, timeout=0.3) as client:
        try:
            await client.post("/verify", json=CASE)
        except httpx2.TimeoutException:
            pass
        else:
            raise AssertionError("the gate was closed")
        await until(lambda: engine.under_way == 0 and all(sequence.closed for sequence in engine.sequences))
        assert engine.sequences
        assert await in_flight(client) == 0


async def test_a_body_that_streams_in_is_refused_before_its_end() -> None:
    head = b"POST /verify HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with listening(app_of(max_body_bytes=100_000)) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(url).port)
        writer.write(head + b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")  # and more to come
        async with asyncio.timeout(10):
            assert await reader.readline() == b"HTTP/1.1 413 Request Entity Too Large\r\n"
        writer.close()


def test_sigterm_finishes_what_is_under_way_and_refuses_what_is_new() -> None:
    command = [sys.executable, str(Path(__file__).with_name("scripted_server.py"))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        line = next(line for line in server.stderr if "Uvicorn running on" in line)
        url = line.split("running on ")[1].split()[0]
        replies: list[httpx2.Response] = []
        caller = threading.Thread(target=lambda: replies.append(httpx2.post(f"{url}/verify", json=CASE, timeout=30)))
        caller.start()
        while httpx2.get(f"{url}/ready").json()["cases_in_flight"] == 0:
            pass
        server.send_signal(signal.SIGTERM)
        while (state := httpx2.get(f"{url}/ready")).status_code == 200:
            pass
        late = httpx2.post(f"{url}/verify", json=cases_of(1)[0])
        caller.join(timeout=30)
        log = server.stderr.read()
        assert server.wait(timeout=30) in (0, -signal.SIGTERM)
    for refusal in (state, late):  # it listens on, so that a balancer and clients are told to go elsewhere
        assert refusal.status_code == 503
        assert refusal.json()["type"] == "urn:medverify:problem:draining"
        assert int(refusal.headers["retry-after"]) >= 1
    assert [reply.status_code for reply in replies] == [200]
    assert Judgment.model_validate(replies[0].json()).verdict == 1
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
