"""The clients over real sockets: every call, every kind of trouble, and never a number that is none."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from live_server import listening
from pydantic import ValidationError
from small_service import judge, service_app

from medverify import AsyncClient, Client, best_of
from medverify.errors import (
    BusyError,
    NotJudgedError,
    OutOfTimeError,
    RefusedError,
    RemoteJudgeError,
    UnauthorisedError,
    UnreachableError,
    WrongAnswerError,
)
from medverify.replies import JudgeItem, TraceItem
from serve.keys import KeyStore, Scope
from serve.stores import Stores
from verifier.remote import RemoteJudge
from verifier.types import Case, Status

QUESTION = "What does warfarin inhibit?"


def case(p: float, id: str = "c", question: str = QUESTION) -> Case:
    return Case(id=id, question=question, trace=f"It is clear: p = {p}. The answer is A.")


async def test_one_case_is_judged() -> None:
    async with listening(service_app()) as url, AsyncClient(url) as client:
        judgment = await client.verify(case(0.9), seed=3)
        assert (judgment.p_correct, judgment.seed, judgment.id) == (pytest.approx(0.9), 3, "c")
        plain = await client.verify({"question": QUESTION, "trace": "p = 0.2"})
        assert (plain.verdict, plain.id) == (0, "0")
        with pytest.raises(ValidationError):
            await client.verify({"question": QUESTION})


async def test_many_cases_are_split_and_come_back_in_order() -> None:
    cases = [case(0.1 * (i % 9) + 0.1, f"c{i}", "trouble" if i == 5 else QUESTION) for i in range(20)]
    async with listening(service_app(max_batch=3)) as url, AsyncClient(url, batch=8) as client:
        judgments = await client.verify_many(cases)
        assert [judgment.id for judgment in judgments] == [f"c{i}" for i in range(20)]
        assert [judgment.status for judgment in judgments].count(Status.ENGINE_FAILED) == 1
        assert judgments[5].p_correct is None
        assert client._batch.most == 2  # 8 were too many, then 4
        assert await client.verify_many([]) == []


async def test_what_the_service_does_not_finish_in_our_time_is_a_status_with_its_name() -> None:
    async with listening(service_app(delay_s=30)) as url, AsyncClient(url, batch=2) as client:
        alone = await client.verify(case(0.9), deadline_s=2)
        several = await client.verify_many([case(0.9, f"c{i}") for i in range(3)], deadline_s=2)
    for judgment in (alone, *several):
        assert (judgment.status, judgment.p_correct) == (Status.TIMEOUT, None)
        assert judgment.judge_id == judge().judge_id


async def test_a_request_that_is_too_large_is_halved_until_it_fits() -> None:
    cases = [Case(id=f"c{i}", question=QUESTION, trace="p = 0.8 " * (50 if i != 4 else 2000)) for i in range(6)]
    async with listening(service_app(max_body_bytes=2000)) as url, AsyncClient(url) as client:
        judgments = await client.verify_many(cases)
    assert [judgment.status for judgment in judgments] == ["scored"] * 4 + ["engine_failed", "scored"]
    assert "HTTP 413" in judgments[4].detail


async def test_rewards() -> None:
    items = [
        TraceItem(question=QUESTION, options={"A": "VKOR", "B": "X"}, trace="p = 0.8. The answer is A", label="A"),
        {"question": "trouble", "trace": "p = 0.8"},
        JudgeItem(response="<think>…</think><answer>0</answer>", label=1, id="j"),
    ]
    async with listening(service_app()) as url, AsyncClient(url) as client:
        scored, lost, judging = await client.reward(items, weights={"accuracy": 3})
    assert (scored.id, scored.reward, scored.judged) == ("0", pytest.approx(0.8), True)
    assert scored.components["label_match"] == 1
    assert (lost.id, lost.reward, lost.status, lost.judged) == ("1", None, "engine_failed", False)
    assert (judging.id, judging.reward) == ("j", 0.0)


async def test_choosing_and_reranking() -> None:
    traces = ["p = 0.3", "p = 0.9", "trouble", "p = 0.6"]
    async with listening(service_app()) as url, AsyncClient(url) as client:
        selected = await client.select(QUESTION, traces, strategy="best_of_n")
        assert (selected.chosen, selected.not_judged) == (1, 1)
        ranked = await client.rerank(QUESTION, ["p = 0.3", "p = 0.9", "p = 0.6"], top_n=2)
        assert [document.index for document in ranked] == [1, 2]
    async with listening(service_app(retry_after_s=1)) as url, AsyncClient(url, retries=0) as client:
        with pytest.raises(NotJudgedError):
            await client.rerank(QUESTION, ["p = 0.3", "trouble"])


async def test_a_job_from_its_submission_to_its_results(tmp_path: Path) -> None:
    cases = [case(0.4, f"c{i}", "trouble" if i == 2 else QUESTION) for i in range(5)]
    async with listening(service_app(0.05, Stores(jobs=tmp_path / "jobs"))) as url, AsyncClient(url) as client:
        job = await client.submit(cases, seed=3)
        assert (job.total, job.over) == (5, False)
        ended = await client.wait(job.id, deadline_s=30)
        assert (ended.status, ended.done, ended.failed) == ("done", 5, 1)
        found = {result.index: result async for result in client.results(job.id)}
        assert [found[i].id for i in range(5)] == [f"c{i}" for i in range(5)]
        assert (found[0].p_correct, found[0].seed, found[2].p_correct) == (pytest.approx(0.4), 3, None)
        assert (await client.wait((await client.retry(job.id)).id)).failed == 1
        assert (await client.cancel(job.id)).status == "done"  # it had ended
        with pytest.raises(RemoteJudgeError, match="404"):
            await client.job("nothing")
        with pytest.raises(ValueError, match="is no id of a job"):
            await client.job("../verify")


async def test_a_job_that_takes_its_time(tmp_path: Path) -> None:
    stores = Stores(jobs=tmp_path / "jobs")
    async with listening(service_app(30, stores, max_body_bytes=2000)) as url, AsyncClient(url) as client:
        job = await client.submit([case(0.4, f"c{i}") for i in range(50)])  # more than a body may have
        assert job.total == 50
        with pytest.raises(OutOfTimeError, match="has 0 of 50"):
            await client.wait(job.id, deadline_s=0.5)
        assert [known.id for known in await client.jobs()] == [job.id]
        assert (await client.cancel(job.id)).over
        assert [result async for result in client.results(job.id)] == []


async def test_who_judges_there() -> None:
    async with listening(service_app()) as url, AsyncClient(url) as client:
        info = await client.info()
    assert (info.judge_id, info.model, info.mode) == (judge().judge_id, "scripted", "free")  # type: ignore[attr-defined]


async def test_the_client_without_a_loop_does_the_same_from_threads_and_inside_a_running_loop(tmp_path: Path) -> None:
    def in_a_thread(url: str) -> list[Any]:
        with Client(url) as client:
            job = client.submit([case(0.4)])
            client.wait(job.id)
            return [
                client.verify(case(0.9)).verdict,
                [judgment.verdict for judgment in client.verify_many([case(0.1), case(0.8)])],
                client.reward([{"question": QUESTION, "trace": "p = 0.8"}], weights={"accuracy": 1})[0].reward,
                client.select(QUESTION, ["p = 0.3", "p = 0.9"], strategy="best_of_n").chosen,
                [document.index for document in client.rerank(QUESTION, ["p = 0.3", "p = 0.9"])],
                [judgment.p_correct for judgment in client.results(job.id)],
                [known.id for known in client.jobs()] == [job.id] == [client.job(job.id).id],
                client.cancel(job.id).status,
                client.wait(client.retry(job.id).id).status,
                client.info().version,
            ]

    async with listening(service_app(stores=Stores(jobs=tmp_path / "jobs"))) as url:
        found = await asyncio.to_thread(in_a_thread, url)
    assert found[:6] == [1, [0, 1], pytest.approx(0.8), 1, [1, 0], [pytest.approx(0.4)]]
    assert found[6:] == [True, "done", "done", "1.2.3"]


async def test_the_thread_of_a_client_ends_with_it() -> None:
    async with listening(service_app()) as url:

        def use() -> None:
            client = Client(url)
            for _ in range(2):  # one that was closed opens again
                client.verify(case(0.9))
                client.close()

        await asyncio.to_thread(use)
    assert "medverify-client" not in {thread.name for thread in threading.enumerate()}


FORKS = """
import os, sys
from medverify import Client
client = Client(sys.argv[1])
case = {"question": "q", "trace": "p = 0.9"}
assert client.verify(case).verdict == 1
child = os.fork()
if not child:
    os._exit(0 if client.verify(case).verdict == 1 else 1)
_, status = os.waitpid(child, 0)
assert client.verify(case).verdict == 1
client.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


async def test_a_forked_worker_uses_its_parents_client(repository: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    async with listening(service_app()) as url:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", FORKS, url, env=environment)
        assert await asyncio.wait_for(child.wait(), 60) == 0


async def test_the_best_of_n(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["p = 0.2", "p = 0.95", "p = 0.5"])

    def choose(url: str) -> Any:
        with Client(url) as client:
            choice = best_of(QUESTION, lambda _: next(drawn), 3, client=client)
            for bad in (([], None), (str, None), (str, 0)):
                with pytest.raises(ValueError, match=r"no traces|n is"):
                    best_of(QUESTION, *bad, client=client)
            return choice

    async with listening(service_app()) as url:
        choice = await asyncio.to_thread(choose, url)
        monkeypatch.setenv("MEDVERIFY_URL", url)
        answers = ["p = 0.3. The answer is B.", "p = 0.4. The answer is A.", "p = 0.3. The answer is B."]
        options = {"A": "VKOR", "B": "thrombin"}
        own = await asyncio.to_thread(best_of, QUESTION, answers, options=options, strategy="soft")
        assert (own.trace, own.answer, own.selected.votes[0].candidates) == (answers[0], "B", [0, 2])
        lost = await asyncio.to_thread(best_of, QUESTION, ["trouble"])
        assert (lost.trace, lost.selected.not_judged) == (None, 1)
        assert "no candidate was judged" in lost.selected.reason
        assert "medverify-client" not in {thread.name for thread in threading.enumerate()}
    assert choice.trace == "p = 0.95"
    assert choice.selected.chosen == 1


# ---- trouble ---------------------------------------------------------------------------------------------------------


def answering(reply: Callable[[dict[str, Any], int], Response]) -> FastAPI:
    """A service that answers every POST with what `reply` makes of the body and the number of the request."""
    app = FastAPI()
    app.state.asked = []
    app.state.headers = []

    @app.post("/{path:path}")
    async def post(request: Request) -> Response:
        body = await request.json()
        app.state.asked.append(body)
        app.state.headers.append(request.headers)
        return reply(body, len(app.state.asked))

    return app


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, UnauthorisedError),
        (403, UnauthorisedError),
        (422, RefusedError),
        (400, RefusedError),
        (404, RemoteJudgeError),
    ],
)
async def test_refusals_have_types_and_are_not_tried_again(status: int, kind: type[RemoteJudgeError]) -> None:
    app = answering(lambda *_: JSONResponse({"detail": "no"}, status))
    async with listening(app) as url, AsyncClient(url) as client:
        for call in (client.verify(case(0.5)), client.verify_many([case(0.5)]), client.select("q", ["t"])):
            with pytest.raises(RemoteJudgeError) as caught:
                await call
            assert type(caught.value) is kind
            assert caught.value.status == status
    assert len(app.state.asked) == 3


async def test_the_key_goes_along_and_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    app = answering(lambda *_: JSONResponse({"detail": "no"}, 401))
    async with listening(app) as url:
        monkeypatch.setenv("MEDVERIFY_URL", url)
        monkeypatch.setenv("MEDVERIFY_API_KEY", "mv_environment")
        for options, key in (({}, "mv_environment"), ({"api_key": "mv_argument"}, "mv_argument")):
            async with AsyncClient(**options) as client:  # type: ignore[arg-type]
                with pytest.raises(UnauthorisedError, match="MEDVERIFY_API_KEY") as caught:
                    await client.verify(case(0.5))
                assert key not in str(caught.value)
                assert app.state.headers[-1]["authorization"] == f"Bearer {key}"


async def test_keys_that_the_service_made_and_revoked(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.sqlite")
    good, reads = keys.add("trainer", {Scope.JUDGE}), keys.add("looker", {Scope.READ})
    async with listening(service_app(stores=Stores(keys=keys))) as url:
        async with AsyncClient(url, api_key=good) as client:
            assert (await client.verify(case(0.9))).verdict == 1
            assert (await client.info()).judge_id == judge().judge_id
            run = await asyncio.to_thread(RemoteJudge.connect, url, api_key=good)
            assert (await run.verify(case(0.2))).verdict == 0
            await run.aclose()
            keys.revoke("trainer")
            with pytest.raises(UnauthorisedError, match="HTTP 401"):
                await client.verify(case(0.9))
        for key, status in ((None, 401), ("mv_wrong", 401), (reads, 403)):
            async with AsyncClient(url, api_key=key) as client:
                with pytest.raises(UnauthorisedError) as caught:
                    await client.verify_many([case(0.9)])
                assert caught.value.status == status


async def test_a_busy_service_is_waited_for_as_long_as_it_asks() -> None:
    times = list[float]()

    def reply(_: Any, number: int) -> Response:
        times.append(asyncio.get_running_loop().time())
        if number == 1:
            return JSONResponse({"detail": "full"}, 503, headers={"Retry-After": "1"})
        return JSONResponse({"results": [{"index": 0, "relevance_score": 0.5}]})

    async with listening(answering(reply)) as url, AsyncClient(url, retries=0) as client:
        await client.rerank("q", ["t"])
    assert times[1] - times[0] >= 1


async def test_what_cannot_be_judged_is_not_waited_for_as_if_it_were_busy() -> None:
    problem = {"type": "urn:medverify:problem:not-judged", "detail": "1 of 2 documents were not judged"}
    app = answering(lambda *_: JSONResponse(problem, 503, headers={"Retry-After": "0"}))
    async with listening(app) as url, AsyncClient(url, retries=2) as client:
        with pytest.raises(NotJudgedError, match=r"1 of 2 documents.*tried 3 times"):
            await client.rerank("q", ["t", "u"])
    assert len(app.state.asked) == 3


async def test_what_was_not_judged_by_the_deadline_was_not_busy() -> None:
    problem = {"type": "urn:medverify:problem:not-judged", "detail": "1 of 2 documents were not judged"}
    app = answering(lambda *_: JSONResponse(problem, 503, headers={"Retry-After": "30"}))
    async with listening(app) as url, AsyncClient(url) as client:
        with pytest.raises(NotJudgedError, match="1 of 2 documents") as caught:
            await client.rerank("q", ["t", "u"], deadline_s=1.0)
    assert not isinstance(caught.value, OutOfTimeError)
    assert caught.value.status == 503
    assert len(app.state.asked) == 1


@pytest.mark.parametrize("deadline_s", [float("inf"), float("-inf"), float("nan")])
async def test_a_deadline_that_is_no_number_of_seconds_is_refused_unsent(deadline_s: float) -> None:
    with pytest.raises(ValueError, match="expected a number of seconds"):
        AsyncClient("http://localhost:1", deadline_s=deadline_s)
    app = answering(lambda *_: JSONResponse({}))
    async with listening(app) as url, AsyncClient(url) as client:
        for call in (
            client.verify(case(0.5), deadline_s=deadline_s),
            client.verify_many([case(0.5)], deadline_s=deadline_s),
            client.reward([{"question": "q", "trace": "t"}], deadline_s=deadline_s),
            client.select("q", ["t"], deadline_s=deadline_s),
            client.rerank("q", ["t"], deadline_s=deadline_s),
            client.wait("j", deadline_s=deadline_s),
        ):
            with pytest.raises(RefusedError, match="nothing was sent"):
                await call
        assert app.state.asked == []


async def test_a_body_that_is_no_json_is_refused_unsent() -> None:
    app = answering(lambda *_: JSONResponse({}))
    async with listening(app) as url, AsyncClient(url) as client:
        with pytest.raises(RefusedError, match="cannot be sent"):
            await client.reward([{"question": "q", "trace": "t"}], weights={"accuracy": float("nan")})
        with pytest.raises(RefusedError, match="cannot be sent"):
            await client.rerank("q", ["half \ud800 a character"])
        assert app.state.asked == []


async def test_the_deadline_covers_all_of_a_call_and_is_told_to_the_service() -> None:
    app = answering(lambda *_: JSONResponse({"detail": "full"}, 503, headers={"Retry-After": "3600"}))
    async with listening(app) as url, AsyncClient(url, deadline_s=5) as client:
        with pytest.raises(BusyError, match="full") as caught:
            await asyncio.wait_for(client.verify(case(0.5)), 3)  # a wait that would be too long is not begun
        assert caught.value.retry_after_s == 3600
        with pytest.raises(OutOfTimeError):
            await client.select("q", ["t"], deadline_s=0.2)
    told = [body["deadline_s"] for body in app.state.asked]
    assert 4 < told[0] < 5
    assert 0 < told[1] < 0.2


async def test_a_service_that_says_nothing() -> None:
    left = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client leaves
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, AsyncClient(f"http://{host}:{port}") as client:
        with pytest.raises(OutOfTimeError, match=r"within 0\.3 s"):
            await client.verify(case(0.5), deadline_s=0.3)
        await asyncio.wait_for(left.wait(), 10)


async def test_nobody_there() -> None:
    async with listening(service_app()) as url:
        pass
    async with AsyncClient(url, retries=1) as client:
        with pytest.raises(UnreachableError, match="tried 2 times"):
            await client.verify(case(0.5))
        with pytest.raises(UnreachableError):
            await client.verify_many([case(0.5), case(0.6)])
        with pytest.raises(UnreachableError):
            await client.submit([case(0.5)])
        with pytest.raises(UnreachableError):
            await anext(client.results("j"))


async def test_a_job_is_not_sent_twice_where_it_may_have_begun() -> None:
    app = answering(lambda *_: Response(status_code=502))
    async with listening(app) as url, AsyncClient(url, retries=5) as client:
        with pytest.raises(RemoteJudgeError, match="502"):
            await client.submit([case(0.5)])
        assert len(app.state.asked) == 1
        with pytest.raises(UnreachableError, match="tried 6 times"):
            await client.rerank("q", ["t"])
        assert len(app.state.asked) == 7


async def test_one_request_that_is_lost_takes_no_other_with_it() -> None:
    """The batch of `c2` and `c3` is answered with nonsense, that of `c4` and `c5` refused because of `c5`."""
    own = judge()
    answers = {f"c{i}": await own.verify(case(0.5, f"c{i}"), 0) for i in range(6)}

    def reply(body: dict[str, Any], _: int) -> Response:
        ids = [asked["id"] for asked in body["cases"]]
        if "c2" in ids:
            return Response(b"<html>")
        if "c5" in ids:
            return JSONResponse({"detail": "too large"}, 422)
        return JSONResponse({"judgments": [answers[id].model_dump(mode="json") for id in ids]})

    async with listening(answering(reply)) as url, AsyncClient(url, batch=2) as client:
        found = await client.verify_many([case(0.5, f"c{i}") for i in range(6)], seed=0)
    assert [judgment.status for judgment in found] == ["scored"] * 2 + ["engine_failed"] * 2 + [
        "scored",
        "engine_failed",
    ]
    assert all(
        judgment.p_correct is None and judgment.verdict is None for judgment in found if judgment.status != "scored"
    )
    assert {judgment.judge_id for judgment in found} == {own.judge_id}
    assert "422" in found[5].detail


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": None},
        {"status": "timeout"},
        {"reward": float("nan")},
        {"reward": "0.5x"},
        {"id": "7"},
        {"components": {"accuracy": float("inf")}},
    ],
)
async def test_a_reward_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    reward = {"id": "0", "status": "scored", "reward": 0.5, "components": {"accuracy": 0.5}, **changes}
    text = json.dumps({"version": "1", "rewards": [reward]})
    async with listening(answering(lambda *_: Response(text))) as url, AsyncClient(url) as client:
        with pytest.raises(WrongAnswerError):
            await client.reward([{"question": "q", "trace": "t"}])


async def test_an_answer_to_something_else_is_refused() -> None:
    other = (await judge().verify(case(0.5, "other"), 0)).model_dump(mode="json")
    answers: dict[str, Any] = {
        "judgments": [other],
        **other,
        "rewards": [],
        "results": [{"index": 3, "relevance_score": 1}],
    }
    async with listening(answering(lambda *_: JSONResponse(answers))) as url, AsyncClient(url) as client:
        for call in (
            client.verify(case(0.5)),
            client.verify_many([case(0.5)]),
            client.reward([{"question": "q", "trace": "t"}]),
            client.rerank("q", ["t"]),
            client.rerank("q", ["t", "u"]),
        ):
            with pytest.raises(WrongAnswerError):
                await call


async def test_no_more_requests_are_in_flight_than_was_said() -> None:
    now, most = 0, 0
    app = FastAPI()

    @app.post("/v1/rerank")
    async def rerank() -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return {"results": [{"index": 0, "relevance_score": 0.5}]}

    async with listening(app) as url, AsyncClient(url, concurrency=3) as client:
        await asyncio.gather(*(client.rerank("q", ["t"]) for _ in range(20)))
        assert most == 3
        hurried = [client.rerank("q", ["t"], deadline_s=0.01) for _ in range(6)]
        assert any(isinstance(end, OutOfTimeError) for end in await asyncio.gather(*hurried, return_exceptions=True))


def test_what_cannot_be_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDVERIFY_URL", raising=False)
    with pytest.raises(ValueError, match="MEDVERIFY_URL=http"):
        AsyncClient()
    for url in ("nowhere", "ftp://host", "http://", "http://h:1x"):
        with pytest.raises(ValueError, match="is no URL"):
            Client(url)
    for options in ({"concurrency": 0}, {"batch": 0}):
        with pytest.raises(ValueError, match="expected at least 1"):
            AsyncClient("http://h", **options)  # type: ignore[arg-type]


def test_a_client_serves_one_event_loop_after_another() -> None:
    async def ask(client: AsyncClient) -> None:
        async with listening(service_app()) as url:
            client._service = AsyncClient(url)._service
            assert (await client.verify(case(0.9))).verdict == 1
            await client.aclose()

    client = AsyncClient("http://h")
    for _ in range(2):
        asyncio.run(ask(client))
