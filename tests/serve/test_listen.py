"""Clients that send too much, or not enough, cost neither memory nor a place."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from live_server import listening
from search_fakes import WordRanker, search_app
from serve_fakes import app_of

from serve import listen

START = b"GET /health HTTP/1.1\r\nHost: h\r\n"
CHUNKED = b"POST /verify HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(url).port)
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.close()


async def sent_until_closed(url: str, first: bytes, piece: bytes) -> tuple[int, bytes]:
    """Send `piece` over and over; gives how many bytes the other side took, and what it answered."""
    sent = 0
    async with connected(url) as (reader, writer):
        writer.write(first)
        answer = asyncio.create_task(reader.read())
        while not answer.done() and sent < 50_000_000:
            writer.write(piece)
            sent += len(piece)
            try:
                await writer.drain()
            except ConnectionError:
                break
            await asyncio.sleep(0)
        try:
            return sent, await answer
        except ConnectionError:
            return sent, b""


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (START, b"X-More: and more\r\n" * 500),
        (START + b"X-Long: ", b"x" * 10_000),
        (START, b"x" * 10_000),
        (b"GET /", b"x" * 10_000),
        (CHUNKED + b"0\r\n", b"X-Trailer: and more\r\n" * 500),
        (CHUNKED + b"2\r\n{}\r\n0\r\nX-Trailer: ", b"x" * 10_000),
    ],
    ids=["lines", "value", "name", "url", "trailers", "trailer"],
)
async def test_endless_headers_are_cut_off(first: bytes, piece: bytes) -> None:
    async with listening(app_of()) as url:
        sent, answer = await sent_until_closed(url, first, piece)
        assert sent < 20_000_000  # what fits into the buffers of two sockets, not into the server
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        async with connected(url) as (reader, writer):
            writer.write(START + b"Connection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("head", [b"X-Long: " + b"x" * 70_000 + b"\r\n\r\n", b"X: y\r\n" * 20_000 + b"\r\n"])
async def test_headers_beyond_the_limit_are_told_so_even_if_they_end(head: bytes) -> None:
    async with listening(app_of()) as url, connected(url) as (reader, writer):
        writer.write(START + head)
        assert await reader.readline() == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


async def test_headers_within_the_limit_and_long_bodies_pass() -> None:
    async with listening(app_of()) as url, httpx2.AsyncClient(base_url=url) as client:
        for _ in range(3):  # on one connection: each request counts for itself
            assert (await client.get("/health", headers={"X-Long": "x" * 40_000})).status_code == 200
        assert (await client.post("/verify", content=b" " * 1_000_000)).status_code == 422
        assert (await client.get("/health", headers={"X-Long": "x" * 40_000})).status_code == 200


@pytest.mark.parametrize(
    ("first", "answer"), [(b"", b""), (START, b"HTTP/1.1 408 Request Timeout"), (b"G", b"HTTP/1.1 408 Request Timeout")]
)
async def test_a_head_that_does_not_arrive_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, first: bytes, answer: bytes
) -> None:
    monkeypatch.setattr(listen, "HEAD_S", 0.2)
    async with listening(app_of()) as url:
        async with connected(url) as (reader, writer):
            writer.write(first)
            assert (await reader.read()).split(b"\r\n")[0] == answer
        async with connected(url) as (reader, writer):  # nor a second one on the same connection
            writer.write(START + b"\r\n")
            assert (await reader.readuntil(b'"ok"}')).startswith(b"HTTP/1.1 200 ")
            writer.write(first)
            if answer:
                assert (await reader.read()).split(b"\r\n")[0] == answer


BODIES = [
    b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
]


@pytest.mark.parametrize("body", BODIES, ids=["announced", "chunked"])
@pytest.mark.parametrize("route", [b"/verify", b"/retrieve", b"/get_observation"])
async def test_a_body_that_does_not_arrive_is_408(route: bytes, body: bytes) -> None:
    app = app_of(body_s=0.2) if route == b"/verify" else search_app(WordRanker(), body_s=0.2)
    async with listening(app) as url, connected(url) as (reader, writer):
        writer.write(body % route)
        answer = await reader.read()  # and the connection is closed
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"urn:medverify:problem:body-too-slow" in answer


@pytest.fixture(params=["scripted_server.py", "held_search_server.py"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves with a drain of two seconds, and its port."""
    command = [sys.executable, str(Path(__file__).with_name(request.param))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        line = next(line for line in process.stderr if "Uvicorn running on" in line)
        port = int(line.split("127.0.0.1:")[1].split()[0])
        try:
            yield process, port
        finally:
            process.kill()


async def test_sigterm_does_not_wait_for_a_body_that_does_not_come(
    server: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = server
    route = b"/retrieve" if "held_search" in str(process.args) else b"/verify"
    async with connected(f"http://127.0.0.1:{port}") as (_, writer):
        writer.write(BODIES[0] % route)
        await writer.drain()
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/health")).status_code == 200  # by now the body has begun
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 15)
