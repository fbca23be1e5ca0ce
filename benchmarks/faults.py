"""Everything goes wrong at once, over real HTTP: does each request end in a judgment or in a failure that has a name, in time?

    python -m benchmarks.faults [--requests 10000] [--in-flight 128] [--kills 4]

benchmarks/faulty_service.py is the service: its engine fails, hangs, does not even stop when told to, gives NaN, infinite
probabilities, nothing or nonsense; its index is down, slow, incomplete or empty; its clock jumps. From outside the disk becomes
full now and then, the process is killed with SIGKILL and started again, some clients leave before their answer, and more come
than are let in. Half of the cases have no fault of their own; a fifth are sent twice at the same time.

Each request has a deadline of its own. It must end by then, once, as what it is: a case without a fault as the judgment that
the engine gave, or as a failure of what happened around it; a case with a fault as a failure, and never as a number. Afterwards
nothing is in flight, and what was written down before a kill is still there.
"""

import argparse
import asyncio
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from benchmarks.faulty_service import FAULTS
from medverify import AsyncClient
from verifier.remote import OutOfTimeError, RemoteJudge, RemoteJudgeError
from verifier.types import Case, Judgment, Status

DEADLINE_S = 10.0  # of a client; starting the service again takes most of it
_HURRY_S = 1.0  # of clients that have less time than the service needs to start again
_LOOKED_UP = 300  # judgments, about
_BEAT_S = 0.02
_LATE_S = 1.0  # for the machine, which the service shares with its clients
_AROUND = frozenset({Status.ENGINE_FAILED, Status.TIMEOUT})  # what a kill, a full queue or a hurry makes of any case


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: a case, what goes wrong with it, and how it is asked for."""

    case: Case
    fault: str
    how: str  # `plain`, `hurry` (with little time), `leave` (the client goes)

    @property
    def deadline_s(self) -> float:
        """Seconds by which it must have ended, tries and waits included."""
        return _HURRY_S if self.how == "hurry" else DEADLINE_S


@dataclass(slots=True)
class Report:
    """How requests ended."""

    asked: int = 0
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)  # fault and status
    wrong: list[str] = field(default_factory=list)  # what should not be
    longest_s: float = 0.0
    overdue: list[tuple[Asked, float]] = field(default_factory=list)  # with their seconds
    held_up_s: float = 0.0  # the longest time that the clients' own event loop was held up
    kills: int = 0
    full_disks: int = 0
    left_in_flight: int | None = None
    kept: int = 0  # judgments with an id that are in the log, of some hundreds that were looked up

    def add(self, asked: Asked, judgment: Judgment, seconds: float) -> None:
        """Look at one answer."""
        self.ended[asked.fault or "none", judgment.status.value] += 1
        self.longest_s = max(self.longest_s, seconds)
        allowed = (FAULTS[asked.fault] if asked.fault else {Status.SCORED}) | _AROUND
        if judgment.status not in allowed:
            self.wrong.append(f"{asked}: {judgment.status}: {judgment.detail}")
        if judgment.status is Status.SCORED:
            if (judgment.verdict, round(judgment.p_correct or 0, 6)) != (1, 0.9):
                self.wrong.append(f"{asked}: {judgment.verdict}, {judgment.p_correct}")
        elif judgment.verdict is not None or judgment.p_correct is not None or not judgment.stop_reason:
            self.wrong.append(f"{asked}: a number without a judgment: {judgment}")
        if judgment.id != asked.case.id or judgment.case_digest != asked.case.digest:
            self.wrong.append(f"{asked}: answered for {judgment.id}")
        if seconds > asked.deadline_s + _LATE_S:
            self.overdue.append((asked, seconds))

    def judge_overdue(self) -> None:
        """Answers that were late, and not for want of a client that looked at the clock."""
        for asked, seconds in self.overdue:
            if seconds > asked.deadline_s + _LATE_S + self.held_up_s:
                self.wrong.append(f"{asked}: after {seconds:.1f} s")


class Service:
    """The service as a process that can be killed and starts again at the same address."""

    def __init__(self, state: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._state = state
        self.url = f"http://127.0.0.1:{self._port}"
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "benchmarks.faulty_service", str(self._port), str(self._state)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """End it at once, and start it again."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = self._start()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Let no file grow for as long as the block runs."""
        process = self._process
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, hard))
        yield
        if process.poll() is None:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def requests(count: int, seed: int = 0) -> list[Asked]:
    """As many requests, the same for the same seed. Equal cases follow one another."""
    draw = random.Random(seed)
    asked = list[Asked]()
    while len(asked) < count:
        fault = draw.choice(sorted(FAULTS)) if draw.random() < 0.5 else ""
        if fault in ("engine-hang", "engine-deaf") and draw.random() < 0.5:
            continue  # they hold a place for long
        question = f"What does warfarin inhibit? fault={fault} {len(asked)}" if fault else f"And now? {len(asked)}"
        for _ in range(2 if draw.random() < 0.1 else 1):
            case = Case.model_validate({"id": f"r{len(asked)}", "question": question, "trace": "It blocks VKOR."})
            asked.append(Asked(case, fault, draw.choices(("plain", "hurry", "leave"), (80, 15, 5))[0]))
    return asked[:count]


async def run(count: int, in_flight: int, kills: int, seed: int = 0) -> Report:
    """Send `count` requests, `in_flight` at a time, and look at every end."""
    report = Report()
    given = list[str]()  # ids in the audit log
    with tempfile.TemporaryDirectory() as folder:
        service = await asyncio.to_thread(Service, Path(folder))
        try:
            judge = await asyncio.to_thread(
                RemoteJudge.connect, service.url, deadline_s=DEADLINE_S, retries=20, connect_s=60.0
            )
            hurried = AsyncClient(service.url, retries=20, concurrency=in_flight)
            waiting = iter(requests(count, seed))
            steps = [round((step + 1) * count / (kills + 1)) for step in range(kills)]

            async def client() -> None:
                for asked in waiting:
                    report.asked += 1
                    begun = time.monotonic()
                    if asked.how == "leave":
                        await _leave(judge, asked)
                        report.ended[asked.fault or "none", "the client left"] += 1
                        continue
                    judgment = await _ask(judge, hurried, asked)
                    report.add(asked, judgment, time.monotonic() - begun)
                    if judgment.judgment_id:
                        given.append(judgment.judgment_id)

            async def asked_for(count: int) -> None:
                while report.asked < count:  # noqa: ASYNC110 - looked at by nobody else
                    await asyncio.sleep(0.02)

            async def trouble() -> None:
                for step in steps:
                    await asked_for(step - in_flight // 2)
                    with service.full_disk():
                        report.full_disks += 1
                        await asked_for(step)
                    report.kills += 1
                    await asyncio.to_thread(service.kill)

            watching = asyncio.create_task(_watch_the_clock(report))
            await asyncio.gather(trouble(), *(client() for _ in range(in_flight)))
            watching.cancel()
            report.judge_overdue()
            await judge.aclose()
            await hurried.aclose()
            report.left_in_flight = await _in_flight(service.url)
            sample = given[:: max(1, len(given) // _LOOKED_UP)]
            report.kept = await _kept(service.url, sample)
            if report.kept != len(sample):
                report.wrong.append(
                    f"{len(sample) - report.kept} of {len(sample)} judgments with an id are not in the log"
                )
        finally:
            await asyncio.to_thread(service.stop)
    return report


async def _ask(judge: RemoteJudge, hurried: AsyncClient, asked: Asked) -> Judgment:
    if asked.how == "plain":
        return await judge.verify(asked.case)
    try:
        return await hurried.verify(asked.case, seed=0, deadline_s=asked.deadline_s)
    except RemoteJudgeError as error:
        late = isinstance(error, OutOfTimeError)
        status, reason = (Status.TIMEOUT, "deadline") if late else (Status.ENGINE_FAILED, "engine_error")
        return Judgment.unjudged(asked.case, status, reason, str(error), seed=0, judge_id=judge.judge_id)  # type: ignore[arg-type]


async def _watch_the_clock(report: Report) -> None:
    """Starting a process, on a machine that is full, holds up everything else in this one."""
    while True:
        asleep = time.monotonic()
        await asyncio.sleep(_BEAT_S)
        report.held_up_s = max(report.held_up_s, time.monotonic() - asleep - _BEAT_S)


async def _leave(judge: RemoteJudge, asked: Asked) -> None:
    try:
        async with asyncio.timeout(0.01):
            await judge.verify(asked.case)
    except TimeoutError:
        pass


async def _in_flight(url: str) -> int:
    """Cases that the service still has, once it had time to notice that all clients are gone."""
    async with httpx2.AsyncClient(base_url=url, timeout=10) as client:
        for _ in range(100):
            count: int = (await client.get("/ready")).json()["cases_in_flight"]
            if count == 0:
                break
            await asyncio.sleep(0.1)
        return count


async def _kept(url: str, ids: list[str]) -> int:
    """How many of these judgments the service still shows."""
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
        return sum([(await client.get(f"/judgments/{id}")).status_code == 200 for id in ids])


def main() -> None:
    """Run, print a table in Markdown, and fail if anything ended as it should not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--kills", type=int, default=4, help="SIGKILLs, each after a while with a full disk")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    report = asyncio.run(run(options.requests, options.in_flight, options.kills, options.seed))
    statuses = sorted({status for _, status in report.ended})
    print(f"| fault | {' | '.join(statuses)} |")
    print("|---" * (len(statuses) + 1) + "|")
    for fault in sorted({fault for fault, _ in report.ended}):
        print(f"| {fault} | {' | '.join(str(report.ended[fault, status]) for status in statuses)} |")
    print(
        f"\n{report.asked} requests in {time.monotonic() - started:.0f} s, {report.kills} kills, {report.full_disks} full disks; "
        f"longest {report.longest_s:.1f} s, the clients held up for {report.held_up_s:.1f} s at most; left in flight "
        f"{report.left_in_flight}; {report.kept} found in the log"
    )
    for line in report.wrong[:20]:
        print(f"WRONG: {line}")
    sys.exit(bool(report.wrong) or report.left_in_flight != 0 or sum(report.ended.values()) != report.asked)


if __name__ == "__main__":
    main()
