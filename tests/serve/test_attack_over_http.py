"""The attack suite gives the same counts in process and through the service on a real socket."""

import asyncio
import json
import socket
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from live_server import listening
from serve_fakes import INFO, OneBook
from typer.testing import CliRunner

from configs.settings import JudgeSettings, RetrieveSettings, ServeSettings
from eval.attack.attack import Attack
from eval.attack.families import FAMILIES
from eval.attack.poison import PoisonedRetriever
from eval.attack.report import measure
from eval.attack.suite import bases, make_attacks
from eval.attack.target import AttackedJudge, NotPoisonedError, PoisonedRemoteJudge, offer_unfit
from eval.run import judge_waves
from medverify.cli.app import app as command
from medverify.poisoned_index import poisoned_index
from retrieval.passage import Retriever, UnavailableError
from retrieval.remote import RemoteRetriever
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
    if "] Warfarin" not in text:
        return "<think>Hm.</think><search>warfarin</search>"
    if number % 11 == 0:
        return "<think>I cannot say.</think>"
    return f"<think>So.</think><answer>{number % 2}</answer>"


def believes(text: str) -> dict[str, float]:
    one = (zlib.crc32(text.encode()) % 1000) / 1000
    return {"1": one, "0": 1 - one} if text.endswith("<answer>") else {}


def judge(index: Retriever | None = None) -> Judge:
    engine = ScriptedEngine(writes, believes, max_sequences=8)
    return Judge(engine, index or OneBook(), load_prompt("judge"), "free", JudgeSettings(force_verdict=False))


def service(index: Retriever | None = None, **settings: Any) -> FastAPI:
    mine = judge(index)
    return create_app(mine, ServeSettings(**settings), INFO.model_copy(update={"judge_id": mine.judge_id}))


def labelled(number: int) -> LabelledCase:
    options = {"A": f"Drug {number}", "B": "Water", "C": "Air"}
    answer = "AB"[number % 2]
    trace = f"The drug of case {number} blocks an enzyme. Its effect takes days. The answer is {answer}."
    case = Case(id=f"t{number}", question=f"What fits case {number}?", options=options, trace=trace)
    return LabelledCase(case, 1 - number % 2, f"q{number}", "", answer, "A")  # type: ignore[arg-type]


CASES = [labelled(number) for number in range(4)]
ATTACKS = make_attacks(bases(CASES, CASES), FAMILIES.values(), 2, 0)
UNPOISONED = [attack for attack in ATTACKS if attack.poison is None]


def fitting(attacks: Sequence[Attack]) -> list[Case]:
    return [case for attack in attacks if (case := attack.case()) is not None]


async def in_process() -> list[Judgment]:
    return [j async for wave in judge_waves(AttackedJudge(judge(), ATTACKS), fitting(ATTACKS)) for j in wave]


async def at(
    url: str, concurrency: int, attacks: Sequence[Attack], poisoned: PoisonedRetriever | None = None
) -> list[Judgment]:
    remote = await asyncio.to_thread(RemoteJudge.connect, url, concurrency=concurrency)
    target = remote if poisoned is None else PoisonedRemoteJudge(remote, attacks, poisoned)
    try:
        judgments = [j async for wave in judge_waves(target, fitting(attacks)) for j in wave]
        return [*judgments, *(await offer_unfit(remote, attacks)).values()]
    finally:
        await remote.aclose()


async def test_all_families_give_the_same_counts_both_ways() -> None:
    """A service with room for three cases is asked by five at once, so that some of the answers come after a wait."""
    here = measure(ATTACKS, await in_process(), judge().prompt)
    poisoned = PoisonedRetriever(OneBook())
    async with poisoned_index(poisoned, RetrieveSettings(), "127.0.0.1", 0) as place:
        index = await asyncio.to_thread(RemoteRetriever.connect, place)
        async with listening(service(index, max_queue=3, retry_after_s=1)) as url:
            there = measure(ATTACKS, await at(url, 5, ATTACKS, poisoned), judge().prompt)
    assert {family.family for family in there.families} == set(FAMILIES)
    assert there.poison_shown == here.poison_shown == 8
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


async def test_a_service_that_searches_elsewhere_is_not_called_poisoned() -> None:
    poisoned = PoisonedRetriever(OneBook())
    async with listening(service()) as url:
        with pytest.raises(NotPoisonedError, match=r"searches elsewhere, or keeps judgments.*max_rows=0"):
            await at(url, 4, ATTACKS, poisoned)


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
        report = measure(UNPOISONED, await at(url, 4, UNPOISONED), mine.prompt)
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


async def test_the_command_poisons_the_searches_of_a_service(tmp_path: Path) -> None:
    """It is started first: the service needs the index that it serves."""
    place = f"127.0.0.1:{free_port()}"

    def run(url: str, upstream: str) -> Any:
        arguments = ["attack", "--url", url, "--poison-at", place, "--families", "poisoned-passage", "--variants", "1"]
        more = ["--json", "--set", f"retrieval.index={upstream}"]
        return CliRunner().invoke(command, [*arguments, *more], env={"COLUMNS": "250"})

    address = f"http://127.0.0.1:{free_port()}"
    async with poisoned_index(PoisonedRetriever(OneBook()), RetrieveSettings(), "127.0.0.1", 0) as upstream:
        attacking = asyncio.create_task(asyncio.to_thread(run, address, upstream))
        index = await until_there(f"http://{place}")
        async with listening(service(index), port=int(address.rpartition(":")[2])):
            done = await attacking
    report = json.loads(done.stdout)
    assert (report["not_run"], report["poison_shown"]) == ({}, 3)
    assert [family["family"] for family in report["families"]] == ["poisoned-passage"]
    assert "are poisoned" in done.stderr
    assert report["judge_id"] == judge().judge_id


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--poison-at", "127.0.0.1:8082"], "for a judge at a --url"),
        (["--url", "http://127.0.0.1:9", "--poison-at", "8082"], "expected HOST:PORT"),
        (["--url", "http://127.0.0.1:9", "--poison-at", "127.0.0.1:99999"], "expected HOST:PORT"),
    ],
)
def test_where_to_poison_is_checked_first(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(command, ["attack", *arguments], env={"COLUMNS": "250"})
    assert done.exit_code == 2
    assert message in done.stderr


async def test_a_taken_port_is_told() -> None:
    retriever = PoisonedRetriever(OneBook())
    async with poisoned_index(retriever, RetrieveSettings(), "127.0.0.1", 0) as place:
        port = int(place.rpartition(":")[2])
        with pytest.raises(OSError, match="is the port taken"):
            async with poisoned_index(retriever, RetrieveSettings(), "127.0.0.1", port):
                pass


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def until_there(place: str) -> RemoteRetriever:
    for _ in range(200):
        try:
            return await asyncio.to_thread(RemoteRetriever.connect, place, retries=0, timeout_s=5)
        except UnavailableError:
            await asyncio.sleep(0.1)
    raise AssertionError(f"nothing listens at {place}")
