"""`medverify eval --url` through the service on a real socket."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from live_server import listening
from serve_fakes import INFO, OneBook
from test_attack_over_http import believes, writes
from typer.testing import CliRunner

from configs.settings import JudgeSettings, ServeSettings
from eval.report.schema import Report
from eval.runfolder import RunFolder
from medverify.cli.app import app as command
from serve.app import create_app
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.packs import read_pack
from verifier.prompt import load_prompt
from verifier.types import Judgment

QUESTIONS = 12


def judge(**settings: Any) -> Judge:
    engine = ScriptedEngine(writes, believes, max_sequences=8)
    return Judge(engine, OneBook(), load_prompt("judge"), "free", JudgeSettings(force_verdict=False, **settings))


def service(mine: Judge, **settings: Any) -> FastAPI:
    return create_app(mine, ServeSettings(**settings), INFO.model_copy(update={"judge_id": mine.judge_id}))


def pack(folder: Path) -> Path:
    questions = [
        {"id": f"q{number}", "question": f"Case {number}?", "options": {"A": "a", "B": "b"}, "answer": "A"}
        for number in range(QUESTIONS)
    ]
    traces = [
        {"qid": f"q{number}", "trace_id": f"q{number}#{place}", "reasoning": f"It works so {place}. The answer is {answer}.",
         "pred": answer, "gold": "A", "trace_label": int(answer == "A"), "generator": "m"}
        for number in range(QUESTIONS)
        for place, answer in enumerate("AB")
    ]  # fmt: skip
    for part, rows in (("questions", questions), ("traces", traces)):
        (folder / f"p.{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "p"


async def evaluate(*arguments: str | Path) -> Any:
    environment = {"COLUMNS": "250", "MEDVERIFY_API_KEY": ""}
    return await asyncio.to_thread(CliRunner().invoke, command, ["eval", *map(str, arguments)], env=environment)


def scores(judgments: list[Judgment]) -> list[tuple[str, str, float | None]]:
    return [(one.id, one.status.value, one.p_correct) for one in judgments]


async def test_a_run_over_a_service_is_a_run(tmp_path: Path) -> None:
    prefix, folder, mine = pack(tmp_path), tmp_path / "run", judge()
    async with listening(service(mine)) as url:
        first = await evaluate(prefix, "-o", folder, "--url", url, "--seeds", "2", "--concurrency", "3")
        kept = (folder / "judgments" / "p.jsonl").read_bytes()
        again = await evaluate(prefix, "-o", folder, "--url", url, "--seeds", "2", "--concurrency", "3")
    alone = [await mine.verify(labelled.case, 0) for labelled in read_pack(prefix)]
    run, report = RunFolder(folder), Report.model_validate_json((folder / "report.json").read_bytes())
    assert scores(run.judgments("p", "")) == scores(alone)
    assert len(run.judgments("p", ".seed1")) == 2 * QUESTIONS
    assert {one.seed for one in run.judgments("p", ".seed1")} == {1}
    unjudged = any(one.p_correct is None for one in alone)
    assert unjudged  # the judge leaves some without a verdict: they are told by the exit code
    assert first.exit_code == again.exit_code == 1, first.output
    assert (folder / "judgments" / "p.jsonl").read_bytes() == kept  # nothing was judged twice
    assert report.judge is not None
    assert (report.judge.judge_id, report.judge.model, report.judge.mode) == (mine.judge_id, INFO.model, INFO.mode)
    assert run.read_run().settings == {"url": url}
    assert run.read_evidence() is None


async def test_a_folder_has_one_judge(tmp_path: Path) -> None:
    prefix, folder = pack(tmp_path), tmp_path / "run"
    async with listening(service(judge())) as url:
        await evaluate(prefix, "-o", folder, "--url", url)
    kept = (folder / "judgments" / "p.jsonl").read_bytes()
    async with listening(service(judge(top_k=1))) as url:
        other = await evaluate(prefix, "-o", folder, "--url", url)
    assert other.exit_code == 2
    assert "holds judgments of another judge" in other.stderr
    assert (folder / "judgments" / "p.jsonl").read_bytes() == kept


async def test_what_an_outage_left_is_listed_and_judged_again(tmp_path: Path) -> None:
    prefix, folder, mine = pack(tmp_path), tmp_path / "run", judge()
    app, broken = service(mine), True

    @app.middleware("http")
    async def faulty(request: Any, call_next: Any) -> Any:
        from starlette.responses import JSONResponse

        if broken and request.url.path == "/verify":
            return JSONResponse({"detail": "out of order"}, status_code=500)
        return await call_next(request)

    async with listening(app) as url:
        first = await evaluate(prefix, "-o", folder, "--url", url)
        failed = RunFolder(folder).judgments("p", "")
        broken = False
        again = await evaluate(prefix, "-o", folder, "--url", url)
        still = RunFolder(folder).judgments("p", "")
        mended = await evaluate(prefix, "-o", folder, "--url", url, "--retry-failed")
    assert first.exit_code == again.exit_code == 1, first.output
    assert {one.status.value for one in failed} == {one.status.value for one in still} == {"engine_failed"}
    assert "engine_failed" in first.stdout
    assert mended.exit_code == 1  # what the judge itself leaves without a verdict
    alone = [await mine.verify(labelled.case, 0) for labelled in read_pack(prefix)]
    assert scores(RunFolder(folder).judgments("p", "")) == scores(alone)


async def test_without_a_service_nothing_is_begun(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = await evaluate(pack(tmp_path), "-o", folder, "--url", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "does not tell its judge_id" in result.stderr
    assert "medverify serve" in result.stderr
    assert not folder.exists()
