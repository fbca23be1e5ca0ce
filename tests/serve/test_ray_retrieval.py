"""The Ray Serve application: what it is made of, and the same answers and honest faults on a real cluster of one machine.

The tests with a cluster need Ray, which the usual environment does not have: `make test-ray` makes one that does.
"""

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
import pytest
import yaml
from ray_running import RunningCluster, needs_ray, running_cluster

from configs.load import load_settings
from medverify.assemble import load_retriever
from medverify.cluster import RetrievalArguments, retrieval
from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.encoder_spec import MINILM_L6, ModelIdentity
from retrieval.index import ExactIndex
from retrieval.local import LocalRetriever
from retrieval.manifest import Manifest
from retrieval.passage import BackendError, Hit, IndexCorruptError, IndexMismatchError, Passage
from retrieval.ready_vectors import build_from_vectors
from retrieval.sharded import Claim, Span, spans
from retrieval.shards import open_shards
from serve.ray_retrieval import ShardSearch, open_texts
from serve.retrieval_schemas import document

FILE = Path("configs/ray-retrieval.yaml")
SHARDS = 3
DEADLINE_S = 2.0


# ---- the file --------------------------------------------------------------------------------------------------------


def test_the_shipped_file_names_what_exists(repository: Path) -> None:
    content = yaml.safe_load((repository / FILE).read_text())
    (app,) = content["applications"]
    module, _, name = app["import_path"].partition(":")
    builder = getattr(import_module(module), name)
    assert builder.__annotations__["args"] is RetrievalArguments
    arguments = RetrievalArguments.model_validate(app["args"])
    assert arguments.shards == SHARDS
    settings = load_settings(arguments.config, {}, arguments.set).settings
    assert settings.retrieval.index == "starter"
    assert not settings.retrieve.allow_partial
    # The proxy must outlast the service, which answers 503 for itself; and a shard must give up before the service does.
    assert content["http_options"]["request_timeout_s"] > settings.retrieve.deadline_s > arguments.shard_deadline_s


@pytest.mark.parametrize("setting", ["retrieval.vectors=sq8", "retrieval.profile=hybrid"])
def test_what_a_cluster_does_not_do_is_refused(setting: str) -> None:
    with pytest.raises(BackendError, match="a cluster searches with"):
        retrieval(RetrievalArguments(set=(setting,)))


# ---- a cluster -------------------------------------------------------------------------------------------------------


class Cluster(NamedTuple):
    url: str
    running: RunningCluster
    local: LocalRetriever
    rows: int

    def replica(self, deployment: str) -> int:
        """The process of a deployment's replica."""
        (pid,) = self.running.replicas("retrieval", deployment)
        return pid


@pytest.fixture(scope="module")
def cluster(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The shipped file's application over the starter index, and the same index in this process."""
    cache = tmp_path_factory.mktemp("cache")
    settings = load_settings(None, {}, [f"paths.cache={cache}"]).settings
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the cluster: the last bits of a query's vector depend on how the work is divided
    local = load_retriever(settings)
    changes = {"set": [f"paths.cache={cache}"], "shards": SHARDS, "shard_deadline_s": DEADLINE_S}
    try:
        with running_cluster(repository / FILE, repository, {"retrieval": changes}) as running:
            yield Cluster(running.url, running, local, len(local.texts))
    finally:
        asyncio.run(local.aclose())
        torch.set_num_threads(threads)


QUERIES = [
    "warfarin mechanism of action",
    "first-line treatment of anaphylaxis",
    "metformin and kidney function",
    "What is the target of ACE inhibitors?",
    "fever",
    "ß-blocker, asthma — 中文 🩺",
]


class Reply(NamedTuple):
    query: str
    partial: bool  # was allowed
    status: int
    body: dict[str, Any]
    headers: httpx2.Headers


async def ask(client: httpx2.AsyncClient, query: str, k: int = 3, partial: bool = False) -> Reply:
    body = {"query": query, "topk": k, "return_scores": True, "partial": partial}
    reply = await client.post("/retrieve", json=body)
    return Reply(query, partial, reply.status_code, reply.json(), reply.headers)


def as_sent(hits: list[Hit]) -> list[dict[str, Any]]:
    return [{"document": json.loads(json.dumps(document(hit.passage))), "score": hit.score} for hit in hits]


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [hit["document"]["id"] for hit in found]


@needs_ray
async def test_the_same_passages_order_and_scores_as_from_one_process(cluster: Cluster) -> None:
    """One search at a time in both places, so that the queries' vectors are equal to the last bit; then so is all else."""
    titles = [cluster.local.texts.get(row).title for row in range(0, cluster.rows, 9)]
    async with httpx2.AsyncClient(base_url=cluster.url, timeout=60) as client:
        for number, query in enumerate([*QUERIES, *titles]):
            k = (1, 3, 10, 100)[number % 4]
            reply = await ask(client, query, k)
            assert reply.body == {"result": [as_sent(await cluster.local.search(query, k))]}
            assert reply.headers["x-index-digest"] == cluster.local.digest


@needs_ray
async def test_many_callers_at_once(cluster: Cluster) -> None:
    wanted = {query: ids(as_sent(await cluster.local.search(query, 3))) for query in QUERIES}
    async with httpx2.AsyncClient(base_url=cluster.url, timeout=60) as client:
        replies = await asyncio.gather(*(ask(client, query) for query in QUERIES * 10))
        for reply in replies:
            assert reply.status == 200
            assert ids(reply.body["result"][0]) == wanted[reply.query]
        several = await client.post("/retrieve", json={"queries": QUERIES, "topk": 3})
        assert [[found["id"] for found in result] for result in several.json()["result"]] == list(wanted.values())


@needs_ray
async def test_the_routes_of_one_machine(cluster: Cluster) -> None:
    async with httpx2.AsyncClient(base_url=cluster.url, timeout=60) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/ready")).json()["status"] == "ready"
        about = (await client.get("/info")).json()
        assert (about["digest"], about["rows"], about["profile"]) == (cluster.local.digest, cluster.rows, "dense")
        assert "ranges" not in about["manifest"]
        refused = await ask(client, " ")
        assert (refused.status, refused.headers["content-type"]) == (422, "application/problem+json")
        actions = {"trajectory_ids": ["t"], "actions": ["<search>warfarin mechanism</search>"]}
        observed = (await client.post("/get_observation", json=actions)).json()
        assert "<information>" in observed["observations"][0]


# ---- faults ----------------------------------------------------------------------------------------------------------


async def searched_without(cluster: Cluster, query: str, k: int, lost: Span) -> list[str]:
    """What is left of the whole ranking without some rows."""
    rows = {cluster.local.texts.get(row).id for row in range(*lost)}
    return [hit.passage.id for hit in await cluster.local.search(query, cluster.rows) if hit.passage.id not in rows][:k]


async def check(cluster: Cluster, reply: Reply, lost: Span) -> str:
    """Every answer is right, an error that says when to come back, or partial where that was asked for; and says so."""
    if reply.status == 503:
        assert int(reply.headers["retry-after"]) > 0
        assert "result" not in reply.body
        return "error"
    assert reply.status == 200
    got = ids(reply.body["result"][0])
    if "partial" not in reply.body:
        assert got == [hit.passage.id for hit in await cluster.local.search(reply.query, 3)]
        return "whole"
    assert reply.partial
    assert reply.body["partial"] is True
    assert reply.body["missing_rows"] == [list(lost)]
    assert got == await searched_without(cluster, reply.query, 3, lost)
    return "partial"


async def until_whole(client: httpx2.AsyncClient) -> None:
    """Wait until a search of all rows succeeds; each try is another query, so that none comes from the cache."""
    async with asyncio.timeout(240):
        while (await ask(client, f"fever {os.urandom(4).hex()}")).status != 200:  # noqa: ASYNC110 - its own condition
            await asyncio.sleep(0.5)


@needs_ray
async def test_a_replica_is_killed_under_load(cluster: Cluster) -> None:
    lost = spans(cluster.rows, SHARDS)[1]
    killed = cluster.replica("ShardSearch-1")
    seen = Counter[str]()
    async with httpx2.AsyncClient(base_url=cluster.url, timeout=60) as client:
        stop = asyncio.Event()

        async def load(number: int) -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                query = f"{QUERIES[number % len(QUERIES)]} {number} {turn}"  # no two alike: none is cached
                seen[await check(cluster, await ask(client, query, partial=number % 2 == 0), lost)] += 1

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(load(number))
            await asyncio.sleep(1)
            os.kill(killed, signal.SIGKILL)
            await asyncio.sleep(0.1)
            await until_whole(client)
            stop.set()
        assert seen["whole"]
        assert seen["error"]
        assert cluster.replica("ShardSearch-1") != killed
        assert (await check(cluster, await ask(client, "fever"), lost)) == "whole"


@needs_ray
async def test_a_replica_hangs(cluster: Cluster) -> None:
    lost = spans(cluster.rows, SHARDS)[2]
    hanging = cluster.replica("ShardSearch-2")
    async with httpx2.AsyncClient(base_url=cluster.url, timeout=60) as client:
        await until_whole(client)
        os.kill(hanging, signal.SIGSTOP)
        try:
            strict = await ask(client, "a strict question")
            assert await check(cluster, strict, lost) == "error"
            assert strict.body["type"] == "urn:medverify:problem:rows-missing"
            assert strict.body["missing_rows"] == [list(lost)]
            assert f"no answer within {DEADLINE_S:g} s" in strict.body["detail"]
            again = await ask(client, "another strict question")
            assert "still at work on an earlier search" in again.body["detail"]
            assert await check(cluster, await ask(client, "a modest question", partial=True), lost) == "partial"
        finally:
            os.kill(hanging, signal.SIGCONT)
        await until_whole(client)
        assert await check(cluster, await ask(client, "a modest question", partial=True), lost) == "whole"


# ---- a shard by itself -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 rows in five files. Read-only: tests that damage it copy it."""
    spec = MINILM_L6.model_copy(
        update={
            "dim": 16,
            "query_model": ModelIdentity(name="made-up", digest="a" * 64),
            "passage_model": ModelIdentity(name="made-up", digest="a" * 64),
        }
    )
    vectors = np.random.default_rng(0).integers(-3, 4, (300, 16)).astype(np.float32)
    passages = [Passage(id=str(row), text=f"passage {row}") for row in range(len(vectors))]
    folder = tmp_path_factory.mktemp("indexes") / "made-up"
    build_from_vectors([(passages, vectors)], spec, folder, cleaner=Cleaner(KEEP_ALL), shard_rows=64)
    return folder


async def test_a_shard_holds_its_rows_and_refuses_all_else(built: Path) -> None:
    manifest = Manifest.load(built)
    claim = Claim(manifest.digest, Span(100, 200))
    shard = ShardSearch(built, claim)
    vectors = np.concatenate([np.asarray(part, dtype=np.float32) for part in open_shards(built, manifest)])
    scores, rows = await shard.search(claim, vectors[:5], 7)
    wanted_scores, wanted = ExactIndex([vectors[100:200]]).search(vectors[:5], 7)
    np.testing.assert_array_equal(rows, wanted + 100)
    np.testing.assert_array_equal(scores, wanted_scores)
    for other in (Claim("0" * 64, claim.span), Claim(claim.digest, Span(100, 201))):
        with pytest.raises(IndexMismatchError, match="this shard holds"):
            await shard.search(other, vectors[:1], 1)


def test_a_shard_of_another_index_does_not_start(built: Path) -> None:
    with pytest.raises(IndexMismatchError, match=r"manifest\.digest"):
        ShardSearch(built, Claim("0" * 64, Span(0, 10)))


def test_a_shard_whose_index_was_replaced_is_not_healthy(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(built, folder)
    manifest = Manifest.load(folder)
    shard = ShardSearch(folder, Claim(manifest.digest, Span(0, 10)))
    shard.check_health()
    manifest.model_copy(update={"created_by": "another build"}).save(folder)
    with pytest.raises(IndexMismatchError, match=r"manifest\.digest"):
        shard.check_health()


def test_a_shard_needs_the_files_of_its_rows_and_no_others(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(built, folder)
    manifest = Manifest.load(folder)
    first, *others = manifest.ranges
    assert others
    for part in others:
        (folder / part.file).unlink()
    ShardSearch(folder, Claim(manifest.digest, Span(first.start, first.stop)))
    with pytest.raises(IndexCorruptError, match=others[0].file):
        ShardSearch(folder, Claim(manifest.digest, Span(first.start, first.stop + 1)))


@pytest.mark.parametrize("name", ["passages.jsonl", "offsets.npy", "vectors/00001.npy"])
def test_a_machine_with_other_contents_does_not_start(
    built: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that went wrong: the right size, and a flipped bit."""
    folder = tmp_path / "index"
    shutil.copytree(built, folder)
    manifest = Manifest.load(folder)
    open_texts(folder, manifest).close()
    content = bytearray((folder / name).read_bytes())
    content[-20] ^= 1
    (folder / name).write_bytes(content)
    vectors = name.startswith("vectors")
    with pytest.raises(IndexCorruptError, match=name):
        ShardSearch(folder, Claim(manifest.digest, Span(100, 101))) if vectors else open_texts(folder, manifest)
    # As if it were a large index: its bytes are read when that is asked for.
    monkeypatch.setattr("serve.ray_retrieval.ALWAYS_VERIFIED_BYTES", 0)
    claim = Claim(manifest.digest, Span(100, 101))
    with pytest.raises(IndexCorruptError, match=name):
        ShardSearch(folder, claim, verify=True) if vectors else open_texts(folder, manifest, verify=True)
    if not vectors:
        open_texts(folder, manifest).close()


def test_texts_of_another_index_are_refused(built: Path, tmp_path: Path) -> None:
    manifest = Manifest.load(built)
    folder = tmp_path / "index"
    shutil.copytree(built, folder)
    manifest.model_copy(update={"created_by": "another build"}).save(folder)
    with pytest.raises(IndexMismatchError, match=r"manifest\.digest"):
        open_texts(folder, manifest)
