"""The service against its engine's own throughput on the same tokens.

    python -m benchmarks.vllm [--engine transformers|vllm] [--cases 16] [--runs 3] [--set section.key=value …]

`--engine vllm` wants an environment with vLLM; `make test-vllm` makes one (`.venv-vllm/bin/python -m benchmarks.vllm …`).
In every run the same cases, other ones than in the run before, are judged in turn by

- `service`: `medverify serve` in a process of its own, one request a case, all at once over HTTP;
- `judge`: the judge in this process, all cases at once; what it asks of its engine is written down;
- `engine`: that, asked of the engine again: the same ids, bounds, stop strings and watched tokens, each case's generations one
  after the other, all cases at once. No search, no parsing, no HTTP;
- `vLLM`: the same asked of vLLM's own AsyncLLM, without our engine around it (with `--engine vllm`).

Greedy, so all four write the same tokens. What a run computed is forgotten before the next begins.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from collections.abc import Sequence as Ids
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from configs.load import load_settings
from medverify.assemble import load_judge
from medverify.cli.common import quiet_libraries
from verifier.engines.base import Completion, Engine, Generate, Sequence, Tokenizer
from verifier.examples import example_cases
from verifier.judge import Judge
from verifier.types import Case, Judgment, Status

_START_S = 300.0


@dataclass
class _RecordedSequence:
    inner: Sequence
    asked: list[Generate]

    async def generate(self, request: Generate) -> Completion:
        self.asked.append(request)
        return await self.inner.generate(request)

    def close(self) -> None:
        self.inner.close()


@dataclass
class RecordingEngine:
    """Implements `base.Engine` over another, and keeps what each sequence was asked for."""

    inner: Engine
    asked: list[list[Generate]] = field(default_factory=list)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.inner.tokenizer

    @property
    def max_context(self) -> int:
        return self.inner.max_context

    @property
    def max_sequences(self) -> int:
        return self.inner.max_sequences

    @asynccontextmanager
    async def open(self, count: int = 1) -> AsyncIterator[list[Sequence]]:
        async with self.inner.open(count) as opened:
            recorded = [_RecordedSequence(sequence, []) for sequence in opened]
            self.asked += [sequence.asked for sequence in recorded]
            yield list(recorded)

    async def preload(self, ids: Ids[int]) -> None:
        await self.inner.preload(ids)

    def describe(self) -> dict[str, str | int | float]:
        return self.inner.describe()

    async def aclose(self) -> None:
        await self.inner.aclose()


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--cases", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="section.key=value")
    options = parser.parse_args()
    quiet_libraries()
    overrides = [f"judge.engine={options.engine}", f"judge.{options.engine}.max_sequences={options.cases}"]
    overrides += [*_small(options.engine), *options.overrides]
    judge = load_judge(load_settings(None, os.environ, overrides).settings, print)
    judge.engine = recorder = RecordingEngine(judge.engine)
    with serving(overrides) as url:
        asyncio.run(measure(judge, recorder, url, options.cases, options.runs))


def _small(engine: str) -> list[str]:
    """What fits twice into a small machine: the service's engine, and the one here."""
    return ["judge.vllm.cache_gib=1.0", "judge.vllm.max_context=4096"] if engine == "vllm" else []


async def measure(judge: Judge, recorder: RecordingEngine, url: str, count: int, runs: int) -> None:
    """Time the ways in turn and print medians and ratios."""
    llm = getattr(recorder.inner, "_llm", None)
    await judge.warm_up()
    times: dict[str, list[float]] = {name: [] for name in ("service", "judge", "engine", *(["vLLM"] if llm else []))}
    async with httpx2.AsyncClient(base_url=url, timeout=3600) as client:
        for run in range(-1, runs):  # the first warms all of them up
            cases = cases_of(run, count)
            spent = {"service": await _timed(ask_service(client, cases, seed=run + 1))}
            recorder.asked.clear()
            await _forget(recorder.inner)
            spent["judge"] = await _timed(ask_judge(judge, cases))
            traffic = list(recorder.asked)
            await _forget(recorder.inner)
            spent["engine"] = await _timed(replay(recorder.inner, traffic))
            if llm:
                await _forget(recorder.inner)
                spent["vLLM"] = await _timed(replay_vllm(recorder.inner, traffic))
            label = "warm-up" if run < 0 else f"run {run + 1}"
            print(f"{label}: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in spent.items()), flush=True)
            if run >= 0:
                for name, seconds in spent.items():
                    times[name].append(seconds)
    show(times, count, recorder.describe())
    await judge.aclose()


def show(times: dict[str, list[float]], count: int, engine: dict[str, str | int | float]) -> None:
    """The medians, and what part of the throughput below it each way reaches."""
    name = f"{engine['engine']}, {engine['dtype']} on {engine['device']}"
    print(f"\n| {count} cases at once; {name} | seconds, median of {len(times['engine'])} |\n|---|---|")
    for way, seconds in times.items():
        print(f"| {way} | {statistics.median(seconds):.1f} |")
    for above, below in (("service", "engine"), ("judge", "engine"), ("service", "vLLM"), ("engine", "vLLM")):
        if below in times:
            shares = [theirs / ours for ours, theirs in zip(times[above], times[below], strict=True)]
            print(f"| **throughput, {above} / {below}** | "
                  f"**{statistics.median(shares):.2f}** ({min(shares):.2f}-{max(shares):.2f}) |")  # fmt: skip


def cases_of(run: int, count: int) -> list[Case]:
    """The demo's cases, over and over, each with a question of its own from its first word on."""
    cases = example_cases()
    return [
        Case.model_validate(
            {**(case := cases[at % len(cases)]).model_dump(exclude={"id", "question"}), "id": str(at),
             "question": {**case.question.model_dump(), "text": f"{1000 * (run + 2) + at}. {case.question.text}"}}
        )
        for at in range(count)
    ]  # fmt: skip


async def ask_service(client: httpx2.AsyncClient, cases: list[Case], seed: int) -> None:
    """One request a case, all at once."""

    async def one(case: Case) -> None:
        reply = await client.post("/verify", json={"case": case.model_dump(mode="json"), "seed": seed})
        _check(Judgment.model_validate_json(reply.raise_for_status().content))

    await asyncio.gather(*map(one, cases))


async def ask_judge(judge: Judge, cases: list[Case]) -> None:
    """All at once, each by itself, as the service does it."""
    for judgment in await asyncio.gather(*map(judge.verify, cases)):
        _check(judgment)


def _check(judgment: Judgment) -> None:
    if judgment.status is not Status.SCORED:
        raise SystemExit(f"case {judgment.id} was not judged: {judgment.detail}")


async def replay(engine: Engine, traffic: list[list[Generate]]) -> None:
    """Ask an engine for the same generations again."""

    async def one(asked: list[Generate]) -> None:
        async with engine.open() as (sequence,):
            for request in asked:
                await sequence.generate(request)

    await asyncio.gather(*map(one, traffic))


async def replay_vllm(engine: Any, traffic: list[list[Generate]]) -> None:
    """Ask vLLM for the same generations, with nothing of ours in between but the parameters."""
    from vllm.inputs import tokens_input

    async def one(asked: list[Generate]) -> None:
        for request in asked:
            prompt = tokens_input(list(request.ids))
            async for _ in engine._llm.generate(prompt, engine._sampling(request), uuid.uuid4().hex):
                pass

    async def everyone() -> None:
        await asyncio.gather(*map(one, traffic))

    await asyncio.wrap_future(engine._on_loop(everyone()))


async def _forget(engine: Any) -> None:
    """Empty vLLM's cache of prefixes; the embedded engine keeps nothing of what is over."""
    if llm := getattr(engine, "_llm", None):
        await asyncio.wrap_future(engine._on_loop(llm.reset_prefix_cache()))


async def _timed(work: Any) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


@contextmanager
def serving(overrides: list[str]) -> Iterator[str]:
    """`medverify serve` with these settings, a free port and a state of its own."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as state:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        flags = [part for override in [*overrides, f"paths.state={state}"] for part in ("--set", override)]
        command = [
            sys.executable,
            "-c",
            "from medverify.cli import main; main()",
            "serve",
            "--port",
            str(port),
            *flags,
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                url = f"http://127.0.0.1:{port}"
                _wait(url, process)
                yield url
            finally:
                process.terminate()


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the service did not start")
        try:
            if httpx2.get(f"{url}/ready", timeout=5).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.5)


if __name__ == "__main__":
    main()
