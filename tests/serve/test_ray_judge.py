"""Judging with Ray Serve, without a cluster: files that describe applications, a replica by itself, the ingress's judge."""

import asyncio
import json
import logging
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from importlib import import_module
from logging.handlers import MemoryHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx2
import pytest
import yaml
from fastapi import FastAPI
from live_server import listening
from ray_running import needs_ray
from search_fakes import WordRanker, search_app
from serve_fakes import CASE, INFO, OneBook, app_of, judge_of, open_engine, until, writes

from configs.settings import PathSettings, ServeSettings, Settings
from medverify import cluster
from medverify.cluster import JudgeArguments
from retrieval.passage import OverloadedError, PartialAnswerError, RetrievalError, UnavailableError
from serve import request_ids
from serve.app import create_app
from serve.engine_health import UnhealthyError
from serve.keys import FILE as KEYS
from serve.keys import KeyStore
from serve.keys import Scope as KeyScope
from serve.logs import log_config, write_log
from serve.ray_judge import (
    Accepted,
    Identity,
    JudgeReplica,
    OtherJudgeError,
    RayJudge,
    RayRetriever,
)
from serve.ray_service import Ingress, Watchman
from serve.request_ids import request_id
from serve.schemas import Info
from verifier.engines.base import EngineError
from verifier.events import Decided, Event, Opened, Searched, Thought
from verifier.judge import Judge
from verifier.types import Case, Judgment, Status

#: Importing Ray Serve declares its schemas in a form that pydantic wants no more.
of_ray_serve = pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")

FILE = Path("configs/ray-judge.yaml")


@pytest.fixture(autouse=True)
def the_log_as_it_was() -> Iterator[None]:
    """Replicas and ingresses set up the log of their process."""
    names = ["", *log_config("text")["loggers"]]
    before = [(logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names]
    yield
    for name, (level, handlers) in zip(names, before, strict=True):
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).handlers[:] = handlers
    request_ids.resume(None)


def case(name: str, question: str = "What does warfarin inhibit?") -> Case:
    return Case.model_validate({**CASE, "id": name, "question": question})


# ---- the file --------------------------------------------------------------------------------------------------------


def applications(content: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Settings]]:
    """The applications of a Serve config and their settings, by name; what cannot be built from their arguments raises."""
    apps = {app["name"]: app for app in content["applications"]}
    settings = {}
    for name, app in apps.items():
        module, _, builder = app["import_path"].partition(":")
        arguments = getattr(import_module(module), builder).__annotations__["args"].model_validate(app["args"])
        settings[name] = arguments.settings()
    return apps, settings


def check(content: dict[str, Any]) -> Settings:
    """What must hold of every file with a judge and an index; gives the judge's settings."""
    apps, settings = applications(content)
    judge, http = settings["judge"], content["http_options"]
    assert judge.retrieval.index == f"http://127.0.0.1:{http['port']}{apps['retrieval']['route_prefix']}"
    assert content["proxy_location"] == "EveryNode"  # so that this address is good everywhere
    assert judge.serve.host == http["host"]  # so that it knows whether strangers can come in
    # The proxy must outlast the service, which answers for itself.
    assert http["request_timeout_s"] > judge.judge.limits.deadline_s
    return judge


def test_the_shipped_file_names_what_exists(repository: Path) -> None:
    content = yaml.safe_load((repository / FILE).read_text())
    check(content)
    apps, _ = applications(content)
    assert JudgeArguments.model_validate(apps["judge"]["args"]).replicas == 2


def test_the_manifest_for_kuberay_names_what_exists(repository: Path) -> None:
    manifest = yaml.safe_load((repository / "configs/kuberay.yaml").read_text())["spec"]
    content = yaml.safe_load(manifest["serveConfigV2"])
    apps, settings = applications(content)
    judge = check(content)
    # Ray's own ports run anybody's code without it.
    assert manifest["rayClusterConfig"]["authOptions"] == {"mode": "token"}
    head, (judges, rows) = (
        manifest["rayClusterConfig"]["headGroupSpec"],
        manifest["rayClusterConfig"]["workerGroupSpecs"],
    )
    (resource,) = apps["judge"]["args"]["ingress_resources"]
    assert resource in head["rayStartParams"]["resources"]
    arguments = JudgeArguments.model_validate(apps["judge"]["args"])
    assert (arguments.replicas, arguments.max_replicas) == (judges["minReplicas"], judges["maxReplicas"])
    index = settings["retrieval"]
    drains = ((head, judge.serve.drain_s), (judges, judge.serve.drain_s), (rows, index.retrieve.drain_s))
    for group, drain_s in drains:
        pod = group["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > drain_s
        mounted = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
        if group is not judges:  # where the manifest or the rows of the index are read
            assert index.retrieval.index.startswith(f"{mounted['index']}/")


def test_the_least_is_not_more_than_the_most() -> None:
    with pytest.raises(ValueError, match="max_replicas is 1, below replicas, 2"):
        JudgeArguments(replicas=2, max_replicas=1)


# ---- a judge that starts before its index ----------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judges that need no model, and look for their index often."""
    monkeypatch.setattr("medverify.cluster._LOOK_S", 0.05)
    monkeypatch.setattr("medverify.cluster.load_judge", lambda _: judge_of())
    monkeypatch.setattr("medverify.cluster.info_of", lambda *_: INFO)


def loader(url: str, **arguments: Any) -> Callable[[], tuple[Sequence[Judge], Info]]:
    """What the judge's application loads in each replica."""
    loaded = list[Callable[[], tuple[Sequence[Judge], Info]]]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("serve.ray_service.application", lambda load, *_: loaded.append(load))
        cluster.judge(JudgeArguments(set=(f"retrieval.index={url}",), **arguments))
    return loaded[0]


@pytest.mark.usefixtures("quick")
async def test_a_judge_waits_for_its_index(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(app_of()) as url:  # the address is the judges' own, until the index has its route
        loading = asyncio.create_task(asyncio.to_thread(loader(url)))
        await until(lambda: "does not tell its digest" in caplog.text)
    await until(lambda: "ConnectError" in caplog.text)
    assert not loading.done()
    async with listening(search_app(WordRanker()), int(url.rpartition(":")[2])):
        judges, info = await loading
    assert (len(judges), info) == (2, INFO)
    assert caplog.text.count("waiting for the index, ") < 10  # what is known is not said again and again


@pytest.mark.usefixtures("quick")
async def test_a_judge_does_not_wait_for_ever(unused_tcp_port: int) -> None:
    with pytest.raises(UnavailableError, match=r"ConnectError.*waited 0\.2 s for it"):
        loader(f"http://127.0.0.1:{unused_tcp_port}", index_wait_s=0.2)()


# ---- the service, whatever is behind it ------------------------------------------------------------------------------


async def test_ready_means_that_a_judge_can_be_asked() -> None:
    running = 2

    async def count() -> int:
        return running

    async with (
        listening(create_app(judge_of(), ServeSettings(), INFO, replicas=count)) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/ready")).json() == {"status": "ready", "cases_in_flight": 0, "replicas": 2}
        assert (await client.get("/info")).json()["replicas"] == 2
        running = 0
        reply = await client.get("/ready")
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "5")
        assert reply.json()["type"] == "urn:medverify:problem:unavailable"
        assert (await client.get("/health")).status_code == 200


async def test_one_process_is_one_replica() -> None:
    async with listening(app_of()) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/ready")).json()["replicas"] == 1
        assert (await client.get("/info")).json()["replicas"] == 1


# ---- a replica by itself ---------------------------------------------------------------------------------------------


def replica_of(judge: Judge) -> JudgeReplica:
    return JudgeReplica(lambda: ([judge], INFO))


async def test_a_replica_tells_what_happens_and_then_the_judgment() -> None:
    judge = judge_of()
    happened = list[Accepted | Event | Judgment]()
    async for item in replica_of(judge).judge(judge.judge_id, case("a"), 7, 60.0):
        happened.append(pickle.loads(pickle.dumps(item)))  # as it crosses to the ingress
    assert [type(item) for item in happened] == [Accepted, Opened, Thought, Searched, Thought, Decided, Judgment]
    judgment = happened[-1]
    assert isinstance(judgment, Judgment)
    assert (judgment.id, judgment.status, judgment.verdict, judgment.seed) == ("a", Status.SCORED, 1, 7)


async def test_a_replica_of_another_judge_refuses() -> None:
    with pytest.raises(OtherJudgeError, match="this replica holds judge"):
        await anext(aiter(replica_of(judge_of()).judge("0" * 64, case("a"), 0, 60.0)))


async def test_a_replica_stops_when_nobody_waits_any_more() -> None:
    engine = open_engine()
    engine.gate.clear()
    judge = judge_of(engine)
    answer = replica_of(judge).judge(judge.judge_id, case("a"), 0, 60.0)
    assert [type(await anext(answer)), type(await anext(answer))] == [Accepted, Opened]
    await until(lambda: engine.under_way)
    await answer.aclose()
    assert not engine.under_way


async def ask(replica: JudgeReplica, judge: Judge, *questions: str) -> None:
    for question in questions:
        async for _ in replica.judge(judge.judge_id, case("a", question), 0, 60.0):
            pass


async def test_a_replica_whose_engine_only_fails_is_not_healthy() -> None:
    works = True
    engine = open_engine()
    engine.script = lambda text: writes(text) if works else EngineError("the model is gone")
    judge = judge_of(engine)
    replica = replica_of(judge)
    await replica.check_health()
    works = False
    await ask(replica, judge, *["What does warfarin inhibit?"] * 7)
    await replica.check_health()
    await ask(replica, judge, "And heparin?")
    with pytest.raises(UnhealthyError, match="8 times in a row: the model is gone"):
        await replica.check_health()
    works = True  # it has mended itself
    await replica.check_health()


async def test_a_replica_whose_model_gives_no_numbers_is_not_healthy() -> None:
    engine = open_engine()
    engine.beliefs = lambda _: {"1": float("nan")}
    judge = judge_of(engine)
    replica = replica_of(judge)
    await ask(replica, judge, *["What does warfarin inhibit?"] * 8)
    with pytest.raises(UnhealthyError, match="NaN"):
        await replica.check_health()


async def test_bad_cases_are_no_fault_of_the_replica() -> None:
    judge = judge_of()
    replica = replica_of(judge)
    await ask(replica, judge, *["trouble"] * 20)
    await replica.check_health()


async def test_a_replica_without_a_free_place_is_busy_and_not_ill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.engine_health._PROBE_S", 0.05)
    engine = open_engine()
    judge = judge_of(engine)
    replica = replica_of(judge)
    await ask(replica, judge, *["trouble"] * 8)
    engine.gate.clear()
    await replica.check_health()
    engine.gate.set()


def test_errors_of_a_search_cross_between_processes() -> None:
    busy = pickle.loads(pickle.dumps(OverloadedError("full", 2.5)))
    assert (str(busy), busy.retry_after_s) == ("full", 2.5)
    partial = pickle.loads(pickle.dumps(PartialAnswerError("lost", [(1, 2)], [[]])))
    assert (str(partial), partial.missing, partial.hits) == ("lost", ((1, 2),), [[]])


# ---- the ingress by itself --------------------------------------------------------------------------------------------


class OneReplica:
    """The handle of a deployment with one replica, which is in this process."""

    def __init__(self, replica: JudgeReplica) -> None:
        self._replica = replica
        self.about = Method(self._about)
        self.judge = Method(lambda *args: Answer(replica.judge(*args)))
        self.search = Method(replica.search)

    def options(self, **_: Any) -> "OneReplica":
        return self

    async def _about(self) -> Identity:
        return self._replica.about()


class Method(NamedTuple):
    """Called as Ray Serve wants it."""

    remote: Callable[..., Any]


class Answer:
    """What comes from a replica, as far as a `RayJudge` uses it."""

    def __init__(self, items: AsyncIterator[Any]) -> None:
        self._items = items

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._items

    def __anext__(self) -> Awaitable[Any]:
        return anext(self._items)

    def cancel(self) -> None:
        """Nothing is elsewhere."""


async def ingress_app(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """What answers HTTP, with one judge running."""
    monkeypatch.setattr("ray.serve.get_replica_context", lambda: SimpleNamespace(app_name="judge"))
    monkeypatch.setattr(Watchman, "_ask", lambda _: (1, False))
    judge = judge_of()
    info = INFO.model_copy(update={"judge_id": judge.judge_id, "coherence_judge_id": None})
    handle = OneReplica(JudgeReplica(lambda: ([judge], info)))
    return await Ingress(handle, settings=settings).__serve_build_asgi_app__()  # type: ignore[arg-type]


def served(folder: Path, **settings: Any) -> Settings:
    return Settings(serve=ServeSettings(**settings), paths=PathSettings(state=folder))


@needs_ray
@of_ray_serve
async def test_an_ingress_without_a_key_starts_and_lets_nobody_in_until_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await ingress_app(served(tmp_path, host="0.0.0.0"), monkeypatch)
    async with listening(app) as url, httpx2.AsyncClient(base_url=url) as client:
        for path, body in (("/verify", CASE), ("/reward", {}), ("/select", {}), ("/retrieve", {"query": "warfarin"})):
            assert (await client.post(path, json=body)).status_code == 401
            forged = {"Authorization": "Bearer mv_forged"}
            assert (await client.post(path, json=body, headers=forged)).status_code == 401
        for path in ("/info", "/metrics", "/judgments"):
            assert (await client.get(path)).status_code == 401
        reply = await client.get("/ready")
        assert (reply.status_code, reply.json()["type"]) == (503, "urn:medverify:problem:no-key")
        assert (await client.get("/health")).status_code == 200
        keys = KeyStore(tmp_path / KEYS)
        token = keys.add("trainer", [KeyScope.JUDGE])
        assert (await client.get("/ready")).status_code == 200
        assert (await client.get("/info")).status_code == 401
        assert (await client.get("/info", headers={"X-API-Key": token})).status_code == 200
        keys.revoke("trainer")
        assert (await client.get("/info", headers={"X-API-Key": token})).status_code == 401
        assert (await client.get("/ready")).json()["type"] == "urn:medverify:problem:no-key"
        keys.close()


@needs_ray
@of_ray_serve
async def test_the_log_of_an_ingress_has_the_reason_under_the_id_that_callers_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = await ingress_app(served(tmp_path, log="json"), monkeypatch)
    async with listening(app) as url, httpx2.AsyncClient(base_url=url) as client:
        troubled = {**CASE, "question": "trouble"}
        reply = await client.post("/verify", json=troubled, headers={"X-Request-ID": "step-7/a"})
    assert reply.json()["detail"].endswith("the service's log has the reason, under request step-7/a")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    said = {line["logger"]: line["message"] for line in lines if line.get("request_id") == "step-7/a"}
    assert "the model is out of order" in said["serve.judging"]
    assert said["serve.request_log"].startswith("POST /verify 200")


@needs_ray
async def test_a_replica_knows_which_request_it_works_for() -> None:
    knew = list[str | None]()
    engine = open_engine()
    engine.script = lambda text: knew.append(request_id()) or writes(text)  # type: ignore[func-returns-value]
    judge = judge_of(engine)
    handle: Any = OneReplica(replica_of(judge))
    behind = ray_judge(handle, leaving=False, judge_id=judge.judge_id)
    for name in ("step-7/a", "step-7/b"):
        request_ids.resume(name)
        assert (await asyncio.create_task(behind.verify(case("a")))).status is Status.SCORED
    assert set(knew) == {"step-7/a", "step-7/b"}


def test_the_log_of_another_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Ray Serve's own handlers end for good when they are closed, and closed they are by `logging.config`."""
    written = list[logging.LogRecord]()

    class Collects(logging.Handler):
        emit = written.append  # type: ignore[assignment]

    others = MemoryHandler(1, target=Collects())
    logging.getLogger().addHandler(others)
    write_log("text")
    write_log("json")
    request_ids.resume("r-1")
    logging.getLogger("serve.any").info("it began")
    assert others.target is not None
    assert [record.getMessage() for record in written] == ["it began"]
    (line,) = capsys.readouterr().err.splitlines()  # once, and in the form that was asked for last
    assert (json.loads(line)["message"], json.loads(line)["request_id"]) == ("it began", "r-1")


# ---- the ingress's judge, while no replica has its case ---------------------------------------------------------------


class NobodyThere:
    """The handle of a deployment without a replica, as far as a `RayJudge` uses it: every call waits."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.judge = self

    def options(self, **_: Any) -> "NobodyThere":
        return self

    def remote(self, *_: Any) -> "NobodyThere":
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def __aiter__(self) -> "NobodyThere":
        return self

    async def __anext__(self) -> Any:
        await asyncio.Event().wait()


def ray_judge(handle: Any, leaving: bool, judge_id: str = "j" * 64) -> RayJudge:
    async def is_leaving() -> bool:
        return leaving

    return RayJudge(handle, OneBook(), judge_id, None, seed=3, deadline_s=60.0, max_together=8, is_leaving=is_leaving)


class Refuses(NobodyThere):
    """Ray Serve itself refuses a call: no replica is to be had, or all queues are full."""

    async def __anext__(self) -> Any:
        from ray.serve.exceptions import BackPressureError

        raise BackPressureError(num_queued_requests=9, max_queued_requests=9)


@needs_ray
@of_ray_serve
async def test_what_ray_serve_refuses_is_a_named_failure() -> None:
    judgment = await ray_judge(Refuses(), leaving=False).verify(case("a"))
    assert (judgment.status, judgment.p_correct) == (Status.ENGINE_FAILED, None)
    assert judgment.detail.startswith("the replica that judged this case is gone; tried")


class Loses(NobodyThere):
    """A replica that takes a call and is lost, or whose answer is, in one of the ways that Ray knows."""

    def __init__(self, error: Exception | None, *, told: int = 0) -> None:
        super().__init__()
        self.error, self.told = error, told
        self.search = self

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.__anext__().__await__()

    async def __anext__(self) -> Any:
        if self.told:
            self.told -= 1
            return Accepted()
        raise self.error or StopAsyncIteration


def losses() -> dict[str, Exception]:
    from ray import exceptions

    return {
        "the replica's process ended": exceptions.ActorDiedError(),
        "it was ended": exceptions.RayTaskError(
            "judge", "Traceback", exceptions.TaskCancelledError()
        ).make_dual_exception_instance(),
        "its answer was lost": exceptions.ObjectLostError("0" * 56, None, "call site"),
        "its machine's memory was full": exceptions.OutOfMemoryError("memory"),
        "its machine ended": exceptions.NodeDiedError("node"),
        "a worker crashed": exceptions.WorkerCrashedError(),
        "it was late": exceptions.GetTimeoutError("late"),
    }


@needs_ray
@of_ray_serve
@pytest.mark.parametrize("told", [0, 1])
async def test_however_a_replica_is_lost_its_case_is_a_named_failure(told: int) -> None:
    for how, error in losses().items():
        judgment = await ray_judge(Loses(error, told=told), leaving=False).verify(case("a"))
        assert (judgment.status, judgment.p_correct) == (Status.ENGINE_FAILED, None), how
        assert judgment.detail == "the replica that judged this case is gone; tried 2 times", how


@needs_ray
@of_ray_serve
async def test_however_a_replica_is_lost_its_search_may_be_tried_again() -> None:
    for error in losses().values():
        with pytest.raises(UnavailableError, match="the replica that searched is gone"):
            await RayRetriever(Loses(error), "d" * 64).search("warfarin", 3)


@needs_ray
@of_ray_serve
@pytest.mark.parametrize("told", [0, 1])
async def test_an_answer_that_ends_without_a_judgment_is_a_named_failure(told: int) -> None:
    judgment = await ray_judge(Loses(None, told=told), leaving=False).verify(case("a"))
    assert (judgment.status, judgment.p_correct) == (Status.ENGINE_FAILED, None)
    assert judgment.detail == "the replica ended its answer without a judgment"


@needs_ray
@of_ray_serve
async def test_a_fault_of_the_replica_is_not_tried_again() -> None:
    from ray.exceptions import RayTaskError

    fault = RayTaskError("judge", "Traceback", ZeroDivisionError("no")).make_dual_exception_instance()
    judgment = await ray_judge(Loses(fault), leaving=False).verify(case("a"))
    assert (judgment.status, judgment.p_correct) == (Status.ENGINE_FAILED, None)
    assert judgment.detail == "the replica failed: ZeroDivisionError"
    with pytest.raises(RetrievalError, match="the replica failed: ZeroDivisionError"):
        await RayRetriever(Loses(fault), "d" * 64).search("warfarin", 3)


@needs_ray
@of_ray_serve
async def test_a_case_that_no_replica_will_take_is_a_named_failure() -> None:
    handle = NobodyThere()
    judgment = await ray_judge(handle, leaving=True).verify(case("a"))
    assert (judgment.status, judgment.p_correct, judgment.seed) == (Status.ENGINE_FAILED, None, 3)
    assert judgment.detail == "the service is being taken away, and no judge has taken this case"
    assert handle.cancelled == 1


@needs_ray
@of_ray_serve
async def test_a_case_that_no_replica_takes_in_time_is_late() -> None:
    handle = NobodyThere()
    judgment = await ray_judge(handle, leaving=False).verify(case("a"), 7, deadline_s=1.0)
    assert (judgment.status, judgment.p_correct, judgment.seed) == (Status.TIMEOUT, None, 7)
    assert judgment.detail == "no judgment within 1 s"
    assert handle.cancelled == 1
