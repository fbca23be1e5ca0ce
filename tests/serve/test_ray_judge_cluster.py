"""Judging with Ray Serve on real clusters of one machine: honest outcomes, whatever fails.

They need Ray, which the usual environment does not have: `make test-ray` makes one that does.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from live_server import listening
from ray_running import RunningCluster, needs_ray, running_cluster
from serve_fakes import CASE, INFO, judge_of

from configs.load import load_settings
from configs.settings import ServeSettings
from medverify.assemble import load_judge
from serve.app import create_app
from serve.keys import FILE as KEYS
from serve.keys import KeyStore, Scope
from verifier.coherence import coherence_judge
from verifier.types import Case, Judgment, Status

FILE = Path("configs/ray-judge.yaml")
SCRIPTED_DEADLINE_S = 60.0


def case(name: str, question: str = "What does warfarin inhibit?") -> Case:
    return Case.model_validate({**CASE, "id": name, "question": question})


# ---- a cluster with scripted judges ----------------------------------------------------------------------------------


def scripted_file(folder: Path) -> Path:
    """A Serve config file like the shipped one, without models."""
    arguments = {
        "replicas": 2,
        "judge_cpus": 0.2,
        "ingress_cpus": 0.2,
        "deadline_s": SCRIPTED_DEADLINE_S,
        "state": str(folder),
    }
    content = {
        "http_options": {"host": "127.0.0.1", "port": 8000, "request_timeout_s": 120},
        "applications": [
            {
                "name": "judge",
                "route_prefix": "/",
                "import_path": "ray_scripted:judge",
                "args": arguments,
            }
        ],
    }
    file = folder / "scripted.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture(scope="module")
def scripted(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(scripted_file(tmp_path_factory.mktemp("serve")), repository, {}) as cluster:
        yield cluster


def client_of(cluster: RunningCluster) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=cluster.url, timeout=120, limits=httpx2.Limits(max_connections=None))


async def verify(client: httpx2.AsyncClient, body: Mapping[str, Any]) -> Judgment:
    reply = await client.post("/verify", json={**CASE, **body})
    assert reply.status_code == 200, reply.text
    return Judgment.model_validate(reply.json())


def new() -> dict[str, Any]:
    """What was never judged before, and so cannot come from the cache."""
    return {"trace": f"{os.urandom(4).hex()}: it blocks VKOR"}


async def until_whole(cluster: RunningCluster, client: httpx2.AsyncClient) -> None:
    """Until both judges run, and the service knows it."""
    async with asyncio.timeout(120):
        while len(cluster.replicas("judge", "Judge")) != 2 or (await client.get("/info")).json()["replicas"] != 2:  # noqa: ASYNC110
            await asyncio.sleep(0.3)


@needs_ray
async def test_many_cases_are_judged_as_by_one_judge(scripted: RunningCluster) -> None:
    async with client_of(scripted) as client:
        about = (await client.get("/info")).json()
        assert (about["judge_id"], about["replicas"]) == (judge_of().judge_id, 2)
        assert (await client.get("/ready")).json() == {"status": "ready", "cases_in_flight": 0, "replicas": 2}
        assert len(scripted.replicas("judge", "Judge")) == 2
        judge = judge_of()
        questions = ["What does warfarin inhibit?", "trouble", "silence", "darkness"]
        judgments = await asyncio.gather(
            *(
                verify(client, {"id": str(number), "question": questions[number % 4], "seed": number})
                for number in range(80)
            )
        )
        for number, judgment in enumerate(judgments):
            expected = await judge.verify(case(str(number), questions[number % 4]), number)
            # What went wrong inside is for the log; a caller is told in fixed words.
            inside = expected.status in (Status.ENGINE_FAILED, Status.RETRIEVAL_FAILED)
            assert (judgment.detail == expected.detail) is not inside
            same = {"detail": expected.detail}
            assert judgment.without_clock().model_copy(update=same) == expected.without_clock()
        assert (await client.post("/verify", json={"question": ""})).status_code == 422


@needs_ray
async def test_rewards_and_searches_are_those_of_one_process(scripted: RunningCluster) -> None:
    judge = judge_of()
    here = create_app(judge, ServeSettings(), INFO, coherence=coherence_judge(judge))
    item = {"kind": "trace", "question": CASE["question"], "trace": "It blocks VKOR, as [1] Warfarin says."}
    reward = {"items": [item], "weights": {"accuracy": 0.5, "coherence": 0.5}}
    search = {"query": "warfarin", "topk": 1}
    async with listening(here) as url, httpx2.AsyncClient(base_url=url) as local, client_of(scripted) as client:
        rewards = [(await asking.post("/reward", json=reward)).json()["rewards"] for asking in (local, client)]
        for (given,) in rewards:
            for log in ("judgment_id", "coherence_judgment_id"):  # only the cluster keeps one
                given.pop(log)
        assert rewards[0] == rewards[1]
        assert rewards[0][0]["components"]["coherence"] == 0.9
        found = [(await asking.post("/retrieve", json=search)).json() for asking in (local, client)]
        assert found[0] == found[1]
        assert found[0]["result"]


@needs_ray
async def test_an_episode_in_a_replica_is_watched_as_it_happens(scripted: RunningCluster) -> None:
    async with client_of(scripted) as client:
        reply = await client.post("/verify/stream", json={**CASE, **new()})
    events = [line.removeprefix("event: ") for line in reply.text.splitlines() if line.startswith("event: ")]
    assert events == ["admitted", "opened", "thought", "searched", "thought", "decided", "judgment"]


@needs_ray
async def test_a_deadline_holds_through_the_cluster(scripted: RunningCluster) -> None:
    async with client_of(scripted) as client:
        late = await verify(client, {**new(), "deadline_s": 0.1})
        assert (late.status, late.verdict, late.p_correct) == (Status.TIMEOUT, None, None)


@needs_ray
async def test_a_replica_is_killed_under_load(scripted: RunningCluster) -> None:
    seen = Counter[Status]()
    async with client_of(scripted) as client:
        before = scripted.replicas("judge", "Judge")
        stop = asyncio.Event()

        async def load(number: int) -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                judgment = await verify(client, {**new(), "id": f"{number}-{turn}"})
                assert judgment.id == f"{number}-{turn}"
                seen[judgment.status] += 1

        async with asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(load(number))
            await asyncio.sleep(2)
            os.kill(min(before), signal.SIGKILL)
            async with asyncio.timeout(60):
                while seen.total() <= 32:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            stop.set()
        # What it had was judged by the other: nothing was lost, nothing was made up.
        assert set(seen) == {Status.SCORED}
        await until_whole(scripted, client)
        after = scripted.replicas("judge", "Judge")
        assert len(after - before) == 1
        assert (await verify(client, new())).status is Status.SCORED


@needs_ray
async def test_a_replica_hangs(scripted: RunningCluster) -> None:
    async with client_of(scripted) as client:
        await until_whole(scripted, client)
        hanging = min(scripted.replicas("judge", "Judge"))
        os.kill(hanging, signal.SIGSTOP)
        async with asyncio.timeout(45):  # three checks; without the wait for requests of a replica that hangs
            judgments = await asyncio.gather(*(verify(client, new()) for _ in range(12)))
        assert {judgment.status for judgment in judgments} == {Status.SCORED}
        async with asyncio.timeout(60):
            while hanging in scripted.replicas("judge", "Judge"):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await until_whole(scripted, client)


@needs_ray
async def test_a_case_that_kills_its_replica_does_not_kill_them_all(scripted: RunningCluster) -> None:
    async with client_of(scripted) as client:
        await until_whole(scripted, client)
        poisoned = await verify(client, {"question": "poison"})
        assert (poisoned.status, poisoned.verdict, poisoned.p_correct) == (Status.ENGINE_FAILED, None, None)
        assert poisoned.detail.startswith("the judge's engine failed; ")
        assert (await verify(client, new())).status is Status.SCORED  # waits for a new one
        await until_whole(scripted, client)


@needs_ray
async def test_not_ready_while_no_judge_runs(scripted: RunningCluster) -> None:
    async with client_of(scripted) as client:
        await until_whole(scripted, client)
        async with asyncio.timeout(60):
            while (reply := await client.get("/ready")).status_code == 200:
                for pid in scripted.replicas(
                    "judge", "Judge"
                ):  # new ones as well: they may be there before it is noticed
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.2)
        assert (reply.status_code, reply.json()["type"]) == (503, "urn:medverify:problem:unavailable")
        assert (await client.get("/health")).status_code == 200
        assert (await verify(client, new())).status is Status.SCORED
        await until_whole(scripted, client)


@needs_ray
async def test_what_is_under_way_is_finished_when_the_application_is_taken_away(scripted: RunningCluster) -> None:
    """The last test with this cluster. More cases than the judges take at once: most still wait."""
    async with client_of(scripted) as client:
        await until_whole(scripted, client)
        asked = [
            asyncio.create_task(client.post("/verify", json={**CASE, **new(), "id": str(number)}))
            for number in range(60)
        ]
        async with asyncio.timeout(10):
            while (await client.get("/ready")).json()["cases_in_flight"] < 60:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        scripted.take_away("judge")
        judgments = [Judgment.model_validate((await task).json()) for task in asked]
        assert {judgment.status for judgment in judgments} == {Status.SCORED}
        await asyncio.to_thread(scripted.wait_until_gone)
        assert (await client.post("/verify", json=CASE)).status_code == 404


# ---- the shipped file, with the real model and index -----------------------------------------------------------------

# float32: what shares a batch then changes no more than the last bits.
QUICK = [
    "judge.transformers.dtype=float32",
    "judge.guided.think_tokens=12",
    "judge.guided.query_tokens=8",
    "judge.guided.max_searches=1",
]
TRACES = [
    "Warfarin blocks the recycling of vitamin K, so it inhibits vitamin K epoxide reductase.",
    "Warfarin binds antithrombin and so inhibits thrombin.",
    "Metformin is safe at any kidney function.",
    "Anaphylaxis is treated with intramuscular adrenaline first.",
]


@needs_ray
async def test_the_real_judge_in_two_replicas_judges_as_one_in_this_process(repository: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    cache = f"paths.cache={repository / '.cache' / 'medverify'}"  # outlives the tests: the model is converted once
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the cluster: last bits depend on how work is divided
    local = load_judge(
        load_settings(None, {}, [cache, *QUICK]).settings
    )  # builds the starter index where there is none
    remote = [cache, f"paths.state={tmp_path}", *QUICK, "retrieval.index=http://127.0.0.1:PORT/retrieval"]
    remote.append("serve.host=0.0.0.0")  # as where others can connect
    changes = {"retrieval": {"set": [cache]}, "judge": {"set": remote}}
    try:
        with running_cluster(repository / FILE, repository, changes) as cluster:
            async with client_of(cluster) as client:
                assert (await client.post("/verify", json=CASE)).status_code == 401
                assert (await client.get("/ready")).json()["type"] == "urn:medverify:problem:no-key"
                client.headers["X-API-Key"] = KeyStore(tmp_path / KEYS).add("trainer", [Scope.JUDGE])
                assert (await client.get("/ready")).status_code == 200
                about = (await client.get("/info")).json()
                assert (about["judge_id"], about["replicas"]) == (local.judge_id, 2)
                asked = [verify(client, {"id": str(n), "trace": text, "seed": n}) for n, text in enumerate(TRACES)]
                judgments = await asyncio.gather(*asked)
        for number, (judgment, text) in enumerate(zip(judgments, TRACES, strict=True)):
            expected = await local.verify(Case.model_validate({**CASE, "id": str(number), "trace": text}), number)
            assert judgment.status is Status.SCORED
            assert judgment.searches
            assert (judgment.verdict, judgment.reasoning) == (expected.verdict, expected.reasoning)
            assert judgment.p_correct == pytest.approx(expected.p_correct, abs=1e-4)
            found = [[passage.id for passage in search.passages] for search in judgment.searches]
            assert found == [[passage.id for passage in search.passages] for search in expected.searches]
    finally:
        await local.aclose()
        torch.set_num_threads(threads)
