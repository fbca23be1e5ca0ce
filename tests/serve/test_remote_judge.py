"""The client of a judge at a URL, over real sockets: it always returns, and never a number that is none."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from live_server import listening
from serve_fakes import INFO, GatedEngine, believes, cases_of, judge_of, open_engine, until, writes

from configs.settings import ServeSettings
from eval.run import Judging, judge_waves
from serve.app import create_app
from verifier.judge import Judge
from verifier.remote import (
    OutOfTimeError,
    RefusedError,
    RemoteJudge,
    RemoteJudgeError,
    UnauthorisedError,
    UnreachableError,
    WrongAnswerError,
)
from verifier.types import Case, Status, StopReason

CASES = [Case(id=f"c{i}", **case) for i, case in enumerate(cases_of(6))]


def app_around(judge: Judge, **settings: Any) -> FastAPI:
    """The service with the id of the judge that it has."""
    return create_app(judge, ServeSettings(**settings), INFO.model_copy(update={"judge_id": judge.judge_id}))


@asynccontextmanager
async def remote(url: str, **options: Any) -> AsyncIterator[RemoteJudge]:
    judge = await asyncio.to_thread(RemoteJudge.connect, url, **options)
    try:
        yield judge
    finally:
        await judge.aclose()


async def test_the_client_gives_what_the_judge_gives() -> None:
    local = judge_of()
    async with listening(app_around(judge_of())) as url, remote(url, seed=3) as judge:
        contract: Judging = judge
        assert contract.judge_id == local.judge_id
        found = await judge.verify_together(CASES)
        wanted = [(await local.verify(case, 3)).without_clock() for case in CASES]
        assert [judgment.without_clock() for judgment in found] == wanted
        assert (await judge.verify(CASES[0], 9)).seed == 9
        assert await judge.verify_together([]) == []


async def test_a_failure_at_the_service_comes_as_its_status() -> None:
    async with listening(app_around(judge_of())) as url, remote(url) as judge:
        trouble = await judge.verify(Case(id="t", question="trouble", trace="t"))
        assert (trouble.status, trouble.p_correct) == (Status.ENGINE_FAILED, None)
        assert trouble.detail.startswith("the judge's engine failed; ")
        dark = await judge.verify(Case(id="d", question="darkness", trace="t"))
        assert dark.status is Status.RETRIEVAL_FAILED


async def test_runs_over_files_take_it_for_a_judge() -> None:
    async with listening(app_around(judge_of())) as url, remote(url, concurrency=1) as judge:
        assert judge.max_together == 4
        waves = [[judgment.id for judgment in wave] async for wave in judge_waves(judge, CASES)]
        assert waves == [["c0", "c1", "c2", "c3"], ["c4", "c5"]]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_cases_are_in_flight_than_was_said(concurrency: int) -> None:
    engine = open_engine(delay_s=0.01)
    async with listening(app_around(judge_of(engine))) as url, remote(url, concurrency=concurrency) as judge:
        assert all(judgment.verdict == 1 for judgment in await judge.verify_together(CASES))
    assert engine.most == concurrency


async def test_a_busy_service_is_waited_for() -> None:
    """One place, three callers, and a service that asks for a second: all are judged in the end."""
    engine = open_engine(delay_s=0.01)
    app = app_around(judge_of(engine), max_queue=1, retry_after_s=1)
    async with listening(app) as url, remote(url, concurrency=3, retries=0) as judge:
        found = await judge.verify_together(CASES[:3])
        assert [judgment.status for judgment in found] == [Status.SCORED] * 3
    assert engine.most == 1


async def test_the_deadline_covers_waits_and_work() -> None:
    engine = GatedEngine(writes, believes)
    app = app_around(judge_of(engine), max_queue=1, retry_after_s=3600)
    async with listening(app) as url, remote(url, deadline_s=0.3) as judge:
        first, second = await judge.verify_together(CASES[:2])
        for judgment in (first, second):
            assert (judgment.status, judgment.stop_reason) == (Status.TIMEOUT, StopReason.DEADLINE)
            assert judgment.verdict is judgment.p_correct is None
            assert "no answer within 0.3 s" in judgment.detail
        assert any("the last try: " in j.detail and "HTTP 503" in j.detail for j in (first, second))
        with pytest.raises(OutOfTimeError):
            await judge.ask({"case": CASES[0].model_dump(mode="json", exclude_none=True)})
        engine.gate.set()


async def test_what_the_service_will_not_judge_is_told_apart() -> None:
    async with listening(app_around(judge_of(), max_body_bytes=2000)) as url, remote(url) as judge:
        for body in ({"question": "q", "trace": " "}, {"question": "q"}, {"question": "q", "trace": "t" * 3000}):
            with pytest.raises(RefusedError, match=r"HTTP 4(13|22)"):
                await judge.ask(body)
        large = await judge.verify(Case(id="l", question="q", trace="t" * 3000))
        assert (large.status, large.p_correct) == (Status.ENGINE_FAILED, None)
        assert "HTTP 413" in large.detail


def stand_in(*replies: Response) -> FastAPI:
    """A service that answers `/verify` with these, the last one for ever, and counts."""
    app = FastAPI()
    app.state.asked = 0

    @app.get("/info")
    async def info() -> dict[str, str]:
        return {"judge_id": judge_of().judge_id}

    @app.post("/verify")
    async def verify(request: Request) -> Response:
        app.state.asked += 1
        return replies[min(app.state.asked, len(replies)) - 1]

    return app


async def answered(**changes: Any) -> Response:
    """A judgment of the first case, with changes."""
    judgment = await judge_of().verify(CASES[0], 0)
    return Response(json.dumps({**judgment.model_dump(mode="json"), **changes}))


async def test_lost_answers_are_asked_for_again() -> None:
    app = stand_in(Response(status_code=502), Response(status_code=504), await answered())
    async with listening(app) as url, remote(url) as judge:
        assert (await judge.verify(CASES[0])).verdict == 1
    assert app.state.asked == 3


async def test_tries_end() -> None:
    app = stand_in(Response(b"no route", status_code=502))
    async with listening(app) as url, remote(url, retries=2) as judge:
        lost = await judge.verify(CASES[0])
    assert app.state.asked == 3
    assert (lost.status, lost.stop_reason) == (Status.ENGINE_FAILED, StopReason.ENGINE_ERROR)
    assert "HTTP 502: no route; tried 3 times" in lost.detail


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"id": "c1"}, "answered for 'c1'"),
        ({"seed": 7}, "seed 7"),
        ({"case_digest": "0" * 64}, "not as asked"),
        ({"judge_id": "f" * 64}, "is ffffffffffff… now; a run has one judge"),
        ({"p_correct": None}, "not a judgment"),
        ({"p_correct": 1.5}, "not a judgment"),
        ({"status": "done"}, "not a judgment"),
        ({"verdict": 2}, "not a judgment"),
    ],
)
async def test_answers_that_are_none_are_no_numbers(changes: dict[str, Any], complaint: str) -> None:
    async with listening(stand_in(await answered(**changes))) as url, remote(url) as judge:
        judgment = await judge.verify(CASES[0])
    assert (judgment.status, judgment.verdict, judgment.p_correct) == (Status.ENGINE_FAILED, None, None)
    assert complaint in judgment.detail
    assert judgment.id == "c0"
    assert judgment.case_digest == CASES[0].digest


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Response(b"hello"), WrongAnswerError),
        (Response(b"[]"), WrongAnswerError),
        (Response(status_code=500), RemoteJudgeError),
        (Response(status_code=404), RemoteJudgeError),
        (Response(status_code=400), RefusedError),
    ],
)
async def test_errors_have_types(reply: Response, kind: type[RemoteJudgeError]) -> None:
    app = stand_in(reply)
    async with listening(app) as url, remote(url) as judge:
        with pytest.raises(RemoteJudgeError) as caught:
            await judge.ask({})
    assert type(caught.value) is kind
    assert app.state.asked == 1


async def test_a_lost_service_is_a_status_and_at_the_start_an_error() -> None:
    async with listening(app_around(judge_of())) as url:
        judge = await asyncio.to_thread(RemoteJudge.connect, url, retries=1)
    lost = await judge.verify(CASES[0])
    assert lost.status is Status.ENGINE_FAILED
    assert "tried 2 times" in lost.detail
    await judge.aclose()
    for address in (url, "nowhere", "ftp://x"):
        with pytest.raises(UnreachableError, match="medverify serve"):
            await asyncio.to_thread(RemoteJudge.connect, address, connect_s=0.5, retries=0)


async def test_something_else_that_answers_is_no_judge() -> None:
    app = FastAPI()

    @app.get("/info")
    async def info() -> dict[str, Any]:
        return {"digest": "d", "judge_id": None}

    async with listening(app) as url:
        with pytest.raises(UnreachableError, match="does not tell its judge_id"):
            await asyncio.to_thread(RemoteJudge.connect, url, retries=0)


def test_the_client_serves_one_event_loop_after_another() -> None:
    async def ask() -> None:
        async with listening(app_around(judge_of())) as url, remote(url) as judge:
            assert (await judge.verify(CASES[0])).verdict == 1

    for _ in range(2):
        asyncio.run(ask())


async def test_a_run_that_ends_leaves_nothing_in_flight() -> None:
    engine = GatedEngine(writes, believes)
    async with listening(app_around(judge_of(engine))) as url, remote(url) as judge:
        run = asyncio.create_task(judge.verify_together(CASES))
        await until(lambda: engine.under_way == len(CASES))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until(lambda: engine.under_way == 0)


async def test_its_key_goes_along_and_a_refused_one_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    app = FastAPI()
    known = judge_of()

    def refused(request: Request) -> Response | None:
        return None if request.headers.get("authorization") == "Bearer mv_right" else Response(status_code=401)

    @app.get("/info")
    async def info(request: Request) -> Any:
        return refused(request) or {"judge_id": known.judge_id}

    @app.post("/verify")
    async def verify(request: Request) -> Any:
        return refused(request) or await answered()

    async with listening(app) as url:
        monkeypatch.setenv("MEDVERIFY_API_KEY", "mv_right")
        async with remote(url) as judge:
            assert (await judge.verify(CASES[0])).verdict == 1
        wrong = RemoteJudge(url, known.judge_id, api_key="mv_wrong")
        with pytest.raises(UnauthorisedError, match="MEDVERIFY_API_KEY"):
            await wrong.ask({})
        lost = await wrong.verify(CASES[0])
        assert (lost.status, lost.p_correct) == (Status.ENGINE_FAILED, None)
        await wrong.aclose()
        with pytest.raises(UnreachableError, match="HTTP 401"):
            await asyncio.to_thread(RemoteJudge.connect, url, api_key="mv_wrong", connect_s=1.0)


def test_at_least_one_case_is_in_flight() -> None:
    with pytest.raises(ValueError, match="concurrency is 0"):
        RemoteJudge("http://h", "j", concurrency=0)
