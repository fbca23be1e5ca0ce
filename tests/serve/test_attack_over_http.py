"""The attack suite gives the same counts in process and through the service on a real socket."""

import asyncio
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from live_server import listening
from serve_fakes import INFO, OneBook
from typer.testing import CliRunner

from configs.settings import JudgeSettings, ServeSettings
from eval.attack.attack import Attack
from eval.attack.families import FAMILIES
from eval.attack.report import measure
from eval.attack.suite import bases, make_attacks
from eval.attack.target import AttackedJudge, offer_unfit
from eval.run import judge_waves
from medverify.cli.app import app as command
from serve.app import create_app
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.packs import LabelledCase
from verifier.prompt import load_prompt
from verifier.remote import RemoteJudge
from verifier.types import Case, Judgment


def writes(text: str) -> str:
    """One search, then a verdict that follows from every character of what was read; now and then none at all."""
    number = zlib.crc32(text.encode())
    if "[1] Warfarin" not in text:
        return "<think>Hm.</think><search>warfarin</search>"
    if number % 11 == 0:
        return "<think>I cannot say.</think>"
    return f"<think>So.</think><answer>{number % 2}</answer>"


def believes(text: str) -> dict[str, float]:
    one = (zlib.crc32(text.encode()) % 1000) / 1000
    return {"1": one, "0": 1 - one} if text.endswith("<answer>") else {}


def judge() -> Judge:
    engine = ScriptedEngine(writes, believes, max_sequences=8)
    return Judge(engine, OneBook(), load_prompt("judge"), "free", JudgeSettings(force_verdict=False))


def service(**settings: Any) -> FastAPI:
    mine = judge()
    return create_app(mine, ServeSettings(**settings), INFO.model_copy(update={"judge_id": mine.judge_id}))


def labelled(number: int) -> LabelledCase:
    options = {"A": f"Drug {number}", "B": "Water", "C": "Air"}
    answer = "AB"[number % 2]
    trace = f"The drug of case {number} blocks an enzyme. Its effect takes days. The answer is {answer}."
    case = Case(id=f"t{number}", question=f"What fits case {number}?", options=options, trace=trace)
    return LabelledCase(case, 1 - number % 2, f"q{number}", "", answer, "A")  # type: ignore[arg-type]


CASES = [labelled(number) for number in range(4)]
# The scripted engine takes long over long texts.
FAMILIES_AT_A_URL = [family for family in FAMILIES.values() if not family.in_process and family.name != "length"]
ATTACKS = make_attacks(bases(CASES, CASES), FAMILIES_AT_A_URL, 2, 0)


def fitting(attacks: Sequence[Attack]) -> list[Case]:
    return [case for attack in attacks if (case := attack.case()) is not None]


async def in_process() -> list[Judgment]:
    return [j async for wave in judge_waves(AttackedJudge(judge(), ATTACKS), fitting(ATTACKS)) for j in wave]


async def at(url: str, concurrency: int) -> list[Judgment]:
    remote = await asyncio.to_thread(RemoteJudge.connect, url, concurrency=concurrency)
    judgments = [j async for wave in judge_waves(remote, fitting(ATTACKS)) for j in wave]
    judgments += (await offer_unfit(remote, ATTACKS)).values()
    await remote.aclose()
    return judgments


async def test_both_ways_give_the_same_counts() -> None:
    """A service with room for three cases is asked by five at once, so that some of the answers come after a wait."""
    here = measure(ATTACKS, await in_process(), judge().prompt)
    async with listening(service(max_queue=3, retry_after_s=1)) as url:
        there = measure(ATTACKS, await at(url, 5), judge().prompt)
    assert there.model_dump(exclude={"guarantees"}) == here.model_dump(exclude={"guarantees"})
    assert here.guarantees.live_marks == there.guarantees.live_marks == 0
    assert here.guarantees.foreign_verdicts == 0
    assert here.guarantees.verdicts == sum(family.judged for family in (here.clean, *here.families)) > 50
    assert there.guarantees.verdicts == 0
    # The judge is fickle enough for the counts to say something.
    families = {family.family: family for family in here.families}
    assert here.attacks.false_passes.count > 10
    assert here.attacks.not_judged["unparseable"] > 2
    assert families["do-nothing"].refused > 0
    assert families["rewrite"].flips_to_0.count + families["rewrite"].flips_to_1.count > 0


async def test_a_service_that_takes_what_the_schema_refuses_is_found_out() -> None:
    """An older service, or another's, may judge an empty trace: then it counts as what it was judged."""
    app = FastAPI()
    mine = judge()

    @app.get("/info")
    async def info() -> dict[str, str]:
        return {"judge_id": mine.judge_id}

    @app.post("/verify")
    async def verify(body: dict[str, Any]) -> Judgment:
        case = body["case"]
        case["trace"] = {"text": case["trace"]} if isinstance(case["trace"], str) else case["trace"]
        case["trace"]["text"] = case["trace"]["text"].strip() or "(nothing)"
        return await mine.verify(Case.model_validate(case), body["seed"])

    async with listening(app) as url:
        report = measure(ATTACKS, await at(url, 4), mine.prompt)
    [family] = [family for family in report.families if family.family == "do-nothing"]
    assert family.refused == 0
    assert family.judged + sum(family.not_judged.values()) == family.cases


async def test_the_command_against_a_service(tmp_path: Path) -> None:
    folder, wanted = tmp_path / "[run]", "poisoned-passage,forged-verdict,do-nothing"

    def run(url: str, *more: str) -> Any:
        arguments = ["attack", "--url", url, "--variants", "1", "-o", str(folder), "--families", wanted, *more]
        return CliRunner().invoke(command, arguments, env={"COLUMNS": "250"})

    async with listening(service()) as url:
        first = await asyncio.to_thread(run, url, "--json")
        report = json.loads(first.stdout)
        judgments = (folder / "judgments.jsonl").read_bytes()
        again = await asyncio.to_thread(run, url)
        other = await asyncio.to_thread(run, url, "--seed", "1")
    assert report == json.loads((folder / "report.json").read_text())
    assert report["judge_id"] == judge().judge_id
    assert report["clean"]["cases"] == 3
    assert set(report["not_run"]) == {"poisoned-passage"}
    assert {family["family"] for family in report["families"]} == {"forged-verdict", "do-nothing"}
    unjudged = sum(sum(family["not_judged"].values()) for family in (report["clean"], *report["families"]))
    assert first.exit_code == (1 if unjudged else 0)
    assert (folder / "judgments.jsonl").read_bytes() == judgments  # all was judged before
    assert again.exit_code == first.exit_code
    assert "forged-verdict" in again.stdout
    assert "Not run: poisoned-passage" in again.stdout
    assert (other.exit_code, other.stdout) == (2, "")
    assert "holds other attacks" in other.stderr
