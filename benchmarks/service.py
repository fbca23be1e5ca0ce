"""What the service itself costs: HTTP, admission, coalescing, and the episode around an engine that answers at once.

    python -m benchmarks.service [--requests 50000] [--in-flight 1000] [--delay 1.0] [--stored]

The server is a process of its own with a scripted engine: three turns with two searches a verdict, whose texts are written
beforehand; a retriever that answers at once with three passages; no cache and no audit log unless `--stored`. Every case is
another one. Requests are sent over kept-alive connections by this process.

- CPU per verdict: user and system time of the server with 64 requests in flight, divided by its verdicts.
- p99 under load: with `--in-flight` requests at all times and an engine that takes `--delay` seconds a turn, so that the machine
  is not what is measured, but whether requests are treated alike.
- Memory: resident set of the server over `--requests`, all with `--in-flight` at a time and no delay.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from configs.settings import JudgeSettings, PathSettings, ServeSettings, Settings
from medverify.about import info_of
from retrieval.passage import Hit, Passage
from serve.app import create_app
from serve.listen import listen
from serve.load import Connection
from serve.stores import Stores
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.prompt import load_prompt

_TEXT = "Warfarin inhibits the vitamin K epoxide reductase complex and so the recycling of vitamin K. " * 3
_PASSAGES = [
    Hit(passage=Passage(id=f"p{rank}", title="Warfarin", text=_TEXT), score=1 / rank, rank=rank) for rank in (1, 2, 3)
]
_TURNS = (
    "<think>The reasoning claims that warfarin blocks VKOR.</think><search>warfarin target enzyme</search>",
    "<think>The first passages agree. What about its effect?</think><search>warfarin effect on factors</search>",
    "<think>All of it is supported by the passages.</think><answer>1</answer>",
)


@dataclass(slots=True)
class Book:
    """Finds the same passages for every query."""

    digest: str = "1" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        return _PASSAGES[:k]

    async def aclose(self) -> None:
        """Nothing to close."""


def write(text: str) -> str:
    """The turn after so many answered searches; the prompt itself names the tag once."""
    return _TURNS[min(text.count("</information>") - 1, 2)]


def believe(text: str) -> dict[str, float]:
    return {"1": 0.72, "0": 0.08} if text.endswith("<answer>") else {}


def serve(delay_s: float, in_flight: int, state: Path | None) -> None:
    """Run the server until it is told to stop."""
    short = deque[object](maxlen=1)  # what the engine would remember for tests
    engine = ScriptedEngine(
        write, believe, delay_s=delay_s, max_sequences=max(64, in_flight), requests=short, sequences=short
    )  # type: ignore[arg-type]
    judge = Judge(engine, Book(), load_prompt("judge"), "free", JudgeSettings())
    settings = Settings(
        judge=JudgeSettings(model="scripted"),
        serve=ServeSettings(max_queue=2 * max(64, in_flight), access_log=False, keys="off"),
        paths=PathSettings() if state is None else PathSettings(state=state),
    )
    app = create_app(judge, settings.serve, info_of(judge, settings), None if state is None else Stores.of(settings))
    listen(app, host="127.0.0.1", port=0, drain_s=5, drain=app.state.judging, access_log=False, backlog=4096)


def cpu_s_of(pid: int) -> float:
    """User and system time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server process."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """User and system time so far."""
        return cpu_s_of(self.pid)

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@asynccontextmanager
async def running(delay_s: float, in_flight: int, *, stored: bool) -> AsyncIterator[Server]:
    """Start a server, and stop it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.service", "--serve", str(delay_s), str(in_flight)]
        command += [folder] if stored else []
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220 - nothing else runs yet
        try:
            assert process.stderr
            lines = iter(process.stderr)
            line = await asyncio.to_thread(lambda: next(line for line in lines if "running on" in line))
            yield Server(line.split("running on ")[1].split()[0], process.pid)
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True, slots=True)
class Measured:
    """One load."""

    latencies: list[float]  # seconds
    wall_s: float
    cpu_s: float  # of the server

    def quantile(self, share: float) -> float:
        return sorted(self.latencies)[ceil(share * len(self.latencies)) - 1]


def bodies(count: int) -> Iterator[bytes]:
    """As many cases, each with another question."""
    start = time.time_ns()
    for number in range(count):
        case = {
            "question": f"What does warfarin inhibit? ({start}-{number})",
            "options": {"A": "Vitamin K epoxide reductase", "B": "Thrombin", "C": "Factor Xa", "D": "Platelets"},
            "trace": [_TEXT, "It follows that the recycling of vitamin K is blocked.", "The answer is A."],
        }
        yield json.dumps(case).encode()


async def load(server: Server, count: int, in_flight: int) -> Measured:
    """Send `count` requests, `in_flight` at a time. Each must be judged."""
    waiting = bodies(count)
    latencies = list[float]()

    async def client(connection: Connection) -> None:
        for body in waiting:
            asked = time.perf_counter()
            answer = await connection.post("/verify", body)
            latencies.append(time.perf_counter() - asked)
            assert b'"verdict":1' in answer, answer[:500]
            assert b'"turns":3' in answer

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Connection(server.url)) for _ in range(min(in_flight, count))]
        started, cpu = time.perf_counter(), server.cpu_s()
        await asyncio.gather(*map(client, clients))
        return Measured(latencies, time.perf_counter() - started, server.cpu_s() - cpu)


async def measure(requests: int, in_flight: int, delay_s: float, *, stored: bool) -> None:
    """Measure and print a table in Markdown."""
    print("| what | value |\n|---|---|")
    async with running(0.0, 64, stored=stored) as server:
        await load(server, 200, 64)
        rounds = [await load(server, max(200, requests // 25), 64) for _ in range(5)]
        per_verdict = [1000 * run.cpu_s / len(run.latencies) for run in rounds]
        rate = statistics.median(len(run.latencies) / run.wall_s for run in rounds)
        spread = f"{min(per_verdict):.2f}-{max(per_verdict):.2f}"
        print(f"| CPU ms a verdict, 64 in flight, median of 5 | {statistics.median(per_verdict):.2f} ({spread}) |")
        print(f"| verdicts a second | {rate:.0f} |", flush=True)
    async with running(delay_s, in_flight, stored=stored) as server:
        await load(server, in_flight, in_flight)
        run = await load(server, 10 * in_flight, in_flight)
        mean = statistics.mean(run.latencies)
        print(f"| mean s, {in_flight} in flight, {delay_s:g} s a turn | {mean:.2f} |")
        print(f"| p50, p99, longest | {run.quantile(0.5):.2f}, {run.quantile(0.99):.2f}, {max(run.latencies):.2f} |")
        print(f"| p99 / mean | {run.quantile(0.99) / mean:.2f} |", flush=True)
    async with running(0.0, in_flight, stored=stored) as server:
        resident = list[float]()
        for _ in range(10):
            run = await load(server, requests // 10, in_flight)
            resident.append(server.resident_mb())
        mean = statistics.mean(run.latencies)
        print(f"| p99 / mean, {in_flight} in flight, no delay | {run.quantile(0.99) / mean:.2f} |")
        shown = ", ".join(f"{megabytes:.0f}" for megabytes in resident)
        print(f"| resident MB after each tenth of {requests} | {shown} |", flush=True)


def main() -> None:
    """Measure, or be the server that is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000, help="of the run that memory is measured over")
    parser.add_argument("--in-flight", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=1.0, help="seconds a turn, where latency is measured")
    parser.add_argument("--stored", action="store_true", help="with cache and audit log")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.serve:
        delay, in_flight, *state = options.serve
        serve(float(delay), int(in_flight), Path(state[0]) if state else None)
    else:
        asyncio.run(measure(options.requests, options.in_flight, options.delay, stored=options.stored))


if __name__ == "__main__":
    main()
