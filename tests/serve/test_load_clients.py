"""What load tests are made of, over real sockets."""

import asyncio

import pytest
from live_server import listening
from search_fakes import WordRanker, search_app

from serve.load import Connection, run_load


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
