"""Reranking a file with judges that cost nothing: lines a second, memory, and being killed.

    python -m benchmarks.rerank [--rows 25000,50000,100000] [--kills 3] [--format jsonl|jsonl.gz|parquet]

Two judges whose numbers follow from what they read:

- `scripted`: the real `Judge` with the engine of the tests (`verifier/engines/scripted.py`), so that prompt, episode, parser,
  confidence and judgment are all in the path, for each case, and only the model is not;
- `instant`: answers at once, so that only reading, journal, ranking and writing are left.

Each run is a process of its own and is measured as a whole but for the start of Python. Samples have about 1,000 characters,
eight a question, and lie apart. Files are made in a temporary folder. Seconds of the processor are told beside those of the
clock, for a machine that is busy.
"""

import argparse
import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from configs.digest import sha256_file
from configs.settings import JudgeSettings
from eval.rerank.options import OutputOptions
from eval.rerank.run import Output, Watch, rerank
from eval.rerank.samples import Columns, Samples
from eval.rerank.sources import open_source
from retrieval.passage import Hit
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.prompt import load_prompt
from verifier.types import Case, Judgment, Status, StopReason, Usage

_WORDS = [
    "the",
    "patient",
    "has",
    "a",
    "dose",
    "of",
    "potassium",
    "that",
    "is",
    "low",
    "and",
    "the",
    "answer",
    "follows",
    "from",
    "it",
    "because",
    "renal",
    "loss",
]
_SAMPLES = 8


def main() -> None:
    """Measure and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="25000,50000,100000")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--format", default="jsonl")
    parser.add_argument("--judges", default="scripted,instant")
    parser.add_argument("--run", nargs=3, metavar=("JUDGE", "FILE", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(*options.run)
        return
    sizes = [int(size) for size in options.rows.split(",")]
    print("| judge | rows | seconds, of the processor | lines a second | µs a line, judging | then | peak MiB |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            write_samples(Path(folder) / f"{rows}.{options.format}", rows)
        for judge in options.judges.split(","):
            for rows in sizes:
                measure(judge, Path(folder) / f"{rows}.{options.format}", rows)
        for judge in options.judges.split(","):
            kill(judge, Path(folder) / f"{sizes[-1]}.{options.format}", options.kills)


def write_samples(path: Path, rows: int) -> None:
    """A file of made-up samples; those of one question lie apart."""
    draw = random.Random(rows)
    plain = path.with_name("samples.jsonl")
    with plain.open("w") as file:
        for row in range(rows):
            question = row % -(-rows // _SAMPLES)
            trace = " ".join(draw.choices(_WORDS, k=200))
            record = {
                "question": f"Question {question}: what does a patient with this and that need next?",
                "options": {letter: f"Option {letter} of {question}" for letter in "ABCD"},
                "trace": f"{trace} The answer is {draw.choice('ABCD')}.",
                "generator": "made-up",
                "logprob": -draw.random() * 100,
            }
            file.write(json.dumps(record) + "\n")
    if path.suffix == ".parquet":
        import pyarrow.json
        import pyarrow.parquet as pq

        pq.write_table(pyarrow.json.read_json(plain), path, row_group_size=10_000)
        plain.unlink()
    elif path.suffix == ".gz":
        subprocess.run(["gzip", "-c", str(plain)], check=True, stdout=path.open("wb"))
        plain.unlink()
    else:
        plain.rename(path)


def measure(judge: str, file: Path, rows: int) -> None:
    """One run from its beginning to its end."""
    out = file.with_name(f"{judge}.{file.name}")
    reply = subprocess.run(command(judge, file, out), check=True, capture_output=True, text=True)
    seen = json.loads(reply.stdout)
    print(
        f"| {judge} | {rows:,} | {seen['wall']:.1f}, {seen['judging'] + seen['rest']:.1f} | **{rows / seen['wall']:,.0f}** "
        f"| {1e6 * seen['judging'] / rows:.0f} | {1e6 * seen['rest'] / rows:.0f} | {seen['peak_mib']:.0f} |",
        flush=True,
    )


def kill(judge: str, file: Path, kills: int) -> None:
    """Kill a run again and again, at moments spread over it, then let it end; compare with the run that was not."""
    whole, out = (file.with_name(f"{name}.{file.name}") for name in (judge, f"killed.{judge}"))
    size = Output(whole).judgments.stat().st_size
    draw, killed = random.Random(1), 0
    for turn in range(kills):
        # The last one after the judging, while the output is made.
        due = size * (turn + draw.random()) / max(kills - 1, 1) if turn < kills - 1 else size
        with subprocess.Popen(command(judge, file, out), stdout=subprocess.DEVNULL) as process:
            journal = Output(out).judgments
            while process.poll() is None and not (journal.exists() and journal.stat().st_size >= due):
                time.sleep(0.005)
            time.sleep(0.3 if turn == kills - 1 else 0)
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        print(f"{judge}: killed with {journal.stat().st_size / size:.0%} of the judgments there", flush=True)
    subprocess.run(command(judge, file, out), check=True, stdout=subprocess.DEVNULL)
    same = sha256_file(out) == sha256_file(whole)
    left = sorted(path.name for path in out.parent.glob(f"{out.name}*"))
    print(f"{judge}: killed {killed} times; the same file: {same}, sha256 {sha256_file(out)[:16]}…; beside it {left}\n")


def command(judge: str, file: Path, out: Path) -> list[str]:
    """A run in a process of its own."""
    return [sys.executable, "-m", "benchmarks.rerank", "--run", judge, str(file), str(out)]


def run(judge: str, file: str, out: str) -> None:
    """Rerank a file, and print what it took."""
    began, started = time.perf_counter(), time.process_time()
    judged: list[float] = []
    samples = Samples(open_source(Path(file)), Columns(options="options"))
    watch = Watch(on_ranking=lambda: judged.append(time.process_time()))
    load = {"scripted": scripted, "instant": Instant}[judge]
    rerank(load, samples, OutputOptions(), Output(Path(out)), watch=watch)
    wall, ended = time.perf_counter() - began, time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"wall": wall, "judging": judged[0] - started, "rest": ended - judged[0], "peak_mib": peak}))


def scripted() -> Judge:
    """The real judge around an engine that thinks one thought and answers at once."""
    forgetful = {"requests": deque(maxlen=0), "sequences": deque(maxlen=0)}
    engine = ScriptedEngine(_writes, _believes, **forgetful)  # type: ignore[arg-type]
    return Judge(engine, _NoBooks(), load_prompt("judge"), "free", JudgeSettings())


def _number(text: str) -> int:
    return zlib.crc32(text.encode())


def _writes(text: str) -> str:
    return f"<think>so {_number(text)}</think><answer>{_number(text) % 2}</answer>"


def _believes(text: str) -> dict[str, float]:
    if not text.endswith("<answer>"):
        return {}
    one = _number(text) / 2**32
    return {"1": one * 0.9, "0": (1 - one) * 0.9}


class _NoBooks:
    digest = "1" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        raise AssertionError(f"nothing is searched for, and {query!r} was")

    async def aclose(self) -> None:
        """Nothing to close."""


class Instant:
    """What a run needs of a judge, and no more."""

    judge_id = hashlib.sha256(b"instant").hexdigest()
    seed = 0
    max_together = 64

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> list[Judgment]:
        return [self._judge(case) for case in cases]

    async def aclose(self) -> None:
        """Nothing to close."""

    def _judge(self, case: Case) -> Judgment:
        p = _number(case.trace.render()) / 2**32
        return Judgment(
            id=case.id,
            status=Status.SCORED,
            verdict=1 if p > 0.5 else 0,
            p_correct=p,
            label_mass=1.0,
            forced=False,
            reasoning="",
            searches=[],
            stop_reason=StopReason.ANSWERED,
            turns=1,
            format_score=1.0,
            usage=Usage(),
            latency_ms=None,
            seed=0,
            case_digest=case.digest,
            judge_id=self.judge_id,
        )


if __name__ == "__main__":
    main()
