"""The search clients of verl and SkyRL as PyPI has them, unmodified, against our server over real sockets.

They are not in the usual environment: `make test-peers` lays them over it. verl's client is loaded from its own file, because
importing `verl` needs Ray and tensordict; its releases up to 0.7.1 carry it. Both clients sleep 1, 2, 3 … s between tries;
that constant of theirs is made 0 where all ten tries are wanted.
"""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from live_server import listening
from search_fakes import DRUGS, WordRanker, retriever_of, search_app

from configs.settings import RetrieveSettings
from retrieval.passage import Hit

TRIES = 10
VERL_CLIENT = "verl/tools/utils/search_r1_like_utils.py"


def verl_file() -> Path | None:
    spec = find_spec("verl")
    folders = spec.submodule_search_locations if spec else None
    file = Path(folders[0]).parent / VERL_CLIENT if folders else None
    return file if file and file.exists() else None


def load_verl() -> ModuleType:
    spec = spec_from_file_location("verl_search_client", verl_file())
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs_verl = pytest.mark.skipif(not verl_file(), reason="needs verl 0.7.1: `make test-peers` runs it")
needs_skyrl = pytest.mark.skipif(not find_spec("skyrl_gym"), reason="needs skyrl-gym: `make test-peers` runs it")


@dataclass(frozen=True)
class Peer:
    """One client: its module, and how its trainer calls it with one query."""

    module: ModuleType
    retrieved: Callable[[str, str], tuple[dict[str, Any] | None, str | None]]
    """URL, query → the answer as JSON, or an error."""
    observed: Callable[[str, str], str]
    """URL, query → what the policy reads."""
    rendered: Callable[[list[Hit]], str]
    """What the policy should read for these hits."""


def verl() -> Peer:
    module = load_verl()

    def rendered(hits: list[Hit]) -> str:
        return "\n\n".join(
            f"Doc {hit.rank} (Title: {' '.join(hit.passage.title.split())})\n{hit.passage.text}" for hit in hits
        )

    return Peer(
        module,
        lambda url, query: module.call_search_api(f"{url}/retrieve", [query], 3),
        lambda url, query: str(json.loads(module.perform_single_search_batch(f"{url}/retrieve", [query])[0])["result"]),
        rendered,
    )


def skyrl() -> Peer:
    module = import_module("skyrl_gym.tools.search")

    def rendered(hits: list[Hit]) -> str:
        return "".join(f"Doc {hit.rank}: {' '.join(hit.passage.title.split())}\n{hit.passage.text}\n" for hit in hits)

    def observed(url: str, query: str) -> str:
        group = module.SearchToolGroup(search_url=f"{url}/retrieve", topk=3, log_requests=False)
        return str(json.loads(group.execute_tool("search", query))["result"])

    return Peer(
        module,
        lambda url, query: module.call_search_api(f"{url}/retrieve", query, 3, log_requests=False),
        observed,
        rendered,
    )


@pytest.fixture(params=[pytest.param(verl, marks=needs_verl), pytest.param(skyrl, marks=needs_skyrl)])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    peer: Peer = request.param()
    yield peer
    close_sessions(peer.module)


def close_sessions(module: ModuleType) -> None:
    """SkyRL keeps its sessions for the life of the process."""
    group = getattr(module, "SearchToolGroup", None)
    while group and group._session_pool:
        group._session_pool.popitem()[1].close()


@pytest.fixture
def ranker() -> Iterator[WordRanker]:
    ranker = WordRanker()
    yield ranker
    ranker.gate.set()


@asynccontextmanager
async def held(ranker: WordRanker) -> AsyncIterator[str]:
    """A server whose worker is in the middle of a search and whose queue of one is full."""
    app = search_app(ranker, max_waiting=1)
    async with listening(app) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        ranker.gate.clear()
        ranker.busy.clear()
        first = asyncio.create_task(client.post("/retrieve", json={"query": "held"}))
        assert await asyncio.to_thread(ranker.busy.wait, 10)
        second = asyncio.create_task(client.post("/retrieve", json={"query": "waits"}))
        async with asyncio.timeout(10):
            while "medverify_retrieval_waiting 1.0" not in (await client.get("/metrics")).text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        try:
            yield url
        finally:
            ranker.gate.set()
        assert [reply.status_code for reply in await asyncio.gather(first, second)] == [200, 200]


async def answers(url: str) -> dict[int, int]:
    """How often `/retrieve` answered with each status."""
    async with httpx2.AsyncClient(base_url=url) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    start = 'medverify_http_answers_total{path="/retrieve",status="'
    return {int(line[len(start) :][:3]): int(float(line.split()[1])) for line in lines if line.startswith(start)}


# ---- what they get and what they make of it --------------------------------------------------------------------------


async def test_what_a_peer_gets_is_what_the_local_retriever_gives(peer: Peer, ranker: WordRanker) -> None:
    local = retriever_of(WordRanker())
    async with listening(search_app(ranker)) as url:
        for query in ("digoxin target", "heparin", "é number"):
            hits = await local.search(query, 3)
            answer, error = await asyncio.to_thread(peer.retrieved, url, query)
            assert error is None
            assert answer
            [found] = answer["result"]
            assert [(hit["document"]["id"], hit["document"]["text"], hit["score"]) for hit in found] == [
                (hit.passage.id, hit.passage.text, hit.score) for hit in hits
            ]
            assert await asyncio.to_thread(peer.observed, url, query) == peer.rendered(hits)
    await local.aclose()


@needs_verl
async def test_verl_asks_for_many_and_keeps_their_order() -> None:
    module = load_verl()
    async with listening(search_app()) as url:
        text, facts = await asyncio.to_thread(
            module.perform_single_search_batch, f"{url}/retrieve", [drug.lower() for drug in DRUGS], 1
        )
    assert (facts["status"], facts["total_results"]) == ("success", len(DRUGS))
    observed = json.loads(text)["result"].split("\n---\n")
    assert [block.split("\n")[0] for block in observed] == [f"Doc 1 (Title: {drug} in short)" for drug in DRUGS]


@needs_verl
async def test_one_bad_query_costs_verl_the_whole_call() -> None:
    module = load_verl()
    async with listening(search_app()) as url:
        text, facts = await asyncio.to_thread(module.perform_single_search_batch, f"{url}/retrieve", ["warfarin", ""])
    assert (facts["status"], facts["total_results"]) == ("api_error", 0)
    assert "422 Client Error" in json.loads(text)["result"]


@needs_skyrl
async def test_an_episode_of_skyrl() -> None:
    environment = import_module("skyrl_gym.envs.search.env")
    local = retriever_of(WordRanker())
    async with listening(search_app()) as url:
        config = environment.SearchEnvConfig(search_url=f"{url}/retrieve")
        extras = {"reward_spec": {"ground_truth": {"target": ["VKORC1"]}}, "max_turns": 3}
        episode = environment.SearchEnv(config, extras)
        step = await asyncio.to_thread(episode.step, "<think>Which?</think><search> warfarin </search>")
        assert not step["done"]
        [message] = step["observations"]
        head, tail = "\n<information>", "</information>\n"
        assert message["content"].startswith(head)
        assert message["content"].endswith(tail)
        told = json.loads(message["content"].removeprefix(head).removesuffix(tail))["result"]
        assert told == skyrl().rendered(await local.search("warfarin", 3))
        end = await asyncio.to_thread(episode.step, "<answer>VKORC1</answer>")
        assert (end["done"], end["reward"]) == (True, 1.0)
        close_sessions(skyrl().module)
    await local.aclose()


async def test_many_callers_at_once(peer: Peer, ranker: WordRanker) -> None:
    local = retriever_of(WordRanker())
    queries = [f"{drug.lower()} target {number}" for number in range(20) for drug in DRUGS]
    expected = [peer.rendered(await local.search(query, 3)) for query in queries]
    async with listening(search_app(ranker)) as url:
        with ThreadPoolExecutor(32) as threads:
            loop = asyncio.get_running_loop()
            calls = [loop.run_in_executor(threads, peer.observed, url, query) for query in queries]
            assert await asyncio.gather(*calls) == expected
        assert await answers(url) == {200: len(queries)}
    await local.aclose()


@needs_verl
async def test_verls_semaphore_bounds_what_the_server_sees(ranker: WordRanker) -> None:
    module, semaphore = load_verl(), threading.Semaphore(2)
    async with listening(search_app(ranker, cached_hits=0)) as url:
        with ThreadPoolExecutor(8) as threads:
            loop = asyncio.get_running_loop()
            calls = [
                loop.run_in_executor(
                    threads, module.perform_single_search_batch, f"{url}/retrieve", [f"query {number}"], 3, semaphore
                )
                for number in range(24)
            ]
            assert {facts["status"] for _, facts in await asyncio.gather(*calls)} == {"success"}
        assert max(map(len, ranker.batches)) <= 2


# ---- trouble ---------------------------------------------------------------------------------------------------------


async def test_a_peer_comes_back_to_an_overloaded_server(
    peer: Peer, ranker: WordRanker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with held(ranker) as url:
        call = asyncio.create_task(asyncio.to_thread(peer.observed, url, "warfarin"))
        async with asyncio.timeout(10):
            while (await answers(url)).get(503, 0) == 0:  # noqa: ASYNC110 - another thread's state
                await asyncio.sleep(0.01)
        ranker.gate.set()
        assert (await call).startswith("Doc 1")
        counts = await answers(url)
    assert counts[503] >= 1
    assert counts[200] == 3
    assert "Server Error (503) on attempt 1/10" in caplog.text


@pytest.mark.parametrize("trouble", [500, 503])
async def test_after_ten_tries_the_policy_reads_the_error(
    peer: Peer, ranker: WordRanker, monkeypatch: pytest.MonkeyPatch, trouble: int
) -> None:
    assert (peer.module.MAX_RETRIES, peer.module.INITIAL_RETRY_DELAY) == (TRIES, 1)
    monkeypatch.setattr(peer.module, "INITIAL_RETRY_DELAY", 0)
    server = held(ranker) if trouble == 503 else listening(search_app(ranker))
    async with server as url:
        observed = await asyncio.to_thread(peer.observed, url, "outage")
        assert (await answers(url))[trouble] == TRIES
    assert observed.startswith("Search error: ")
    assert f"Server Error ({trouble}) on attempt 10/10" in observed


async def test_what_cannot_be_searched_for_is_asked_once_and_told_to_the_policy(peer: Peer) -> None:
    async with listening(search_app()) as url:
        observed = await asyncio.to_thread(peer.observed, url, "  ")
        assert await answers(url) == {422: 1}
    assert observed.startswith("Search error: ")
    assert "422 Client Error" in observed


def test_our_deadline_passes_before_a_peer_stops_waiting(peer: Peer) -> None:
    assert RetrieveSettings().deadline_s < peer.module.DEFAULT_TIMEOUT == 30


async def test_a_server_that_is_not_there(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(search_app()) as url:
        pass
    monkeypatch.setattr(peer.module, "INITIAL_RETRY_DELAY", 0)
    assert "Connection Error" in await asyncio.to_thread(peer.observed, url, "warfarin")
