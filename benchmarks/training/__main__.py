"""A step of training: ours against the bare model, and against TRL's GRPOTrainer.

    python -m benchmarks.training [--prompts 4] [--rollouts 8] [--tokens 64] [--rank 16] [--runs 5] [--trl .venv-trl/bin/python]
                                  [--set section.key=value …]

Sides, each a process of its own, take one step each in turn, on the same prompts (traces of an invented formulary, another
batch in every run):

- `ours`: what `medverify train` does in a step: lend the engine the policy's weights, roll out, advantages, update;
- `bare`: `generate` of transformers on all rollouts as one batch, and a forward and backward pass over them, with an optimiser
  step. The weights are not moved from one to the other, and each part has the precision that is faster here;
- `TRL`: a step of its GRPOTrainer (`dr_grpo`), with its arithmetic in float32 and, where the hardware has it, in bfloat16. Wants
  an environment with TRL and peft: `make .venv-trl/.dev`.

On a machine that is shared, CPU seconds (all threads together) tell more than those on the clock.

All draw the same number of tokens: the model's end token does not end a rollout. The rewards are given, not earned: half of each
group is right, so that every rollout is learned from.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.training.job import Job, Seconds
from configs.load import load_settings
from configs.precision import native_bfloat16
from configs.resolve import resolve
from curriculum.closed_world.files import write_worlds
from curriculum.closed_world.world import Recipe
from curriculum.faults import Side
from medverify.cli.common import quiet_libraries
from verifier.engines.tokenizer import HFTokenizer
from verifier.packs import read_pack
from verifier.prompt import load_prompt, prompt_ids

_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64, help="written in each rollout")
    parser.add_argument("--micro", type=int, default=8, help="rollouts of a forward and backward pass")
    parser.add_argument("--rank", type=int, default=16, help="of the LoRA adapter; 0: train the whole weights")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--trl", default=".venv-trl/bin/python", help="Python with TRL; empty: leave TRL out")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="section.key=value")
    options = parser.parse_args()
    quiet_libraries()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        job = make_job(options, Path(folder))
        file = Path(folder) / "job.json"
        job.write(file)
        sides = {name: stack.enter_context(side(command)) for name, command in commands(options.trl, file).items()}
        show(job, measure(sides, options.runs))


def make_job(options: argparse.Namespace, folder: Path) -> Job:
    """Batches of traces from a closed world; one for the warm-up and one for each run."""
    settings = load_settings(None, os.environ, options.overrides).settings
    model = resolve(settings.judge.model, settings.paths.cache).path
    tokenizer, prompt = HFTokenizer(model), load_prompt("brief")
    write_worlds(folder, Recipe(questions=(options.runs + 1) * options.prompts, traces=2), [Side.TRAIN])
    cases = [
        {"case": one.case.model_dump(mode="json"), "label": one.label, "ids": prompt_ids(prompt, one.case, tokenizer)}
        for one in read_pack(folder / "train")
    ][::2]
    starts = range(0, (options.runs + 1) * options.prompts, options.prompts)
    batches = [cases[start : start + options.prompts] for start in starts]
    if options.prompts * options.rollouts % options.micro:
        raise SystemExit("--micro must divide the rollouts of a step")
    return Job(str(model), batches, options.rollouts, options.tokens, options.micro, options.rank, options.overrides)


def commands(trl: str, file: Path) -> dict[str, list[str]]:
    """How each side is started."""
    found = {name: [sys.executable, "-m", f"benchmarks.training.{name}", str(file)] for name in ("ours", "bare")}
    if trl:
        for dtype in ("bfloat16", "float32") if native_bfloat16("cpu") else ("float32",):
            found[f"TRL, {dtype}"] = [trl, "-m", "benchmarks.training.trl", str(file), dtype]
    return found


@contextmanager
def side(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """A process that takes a step when a line is written to it."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **_ENVIRONMENT}
    ) as process:
        try:
            _line(process)  # ready: none loads while another is timed
            yield process
        finally:
            process.terminate()


def measure(sides: dict[str, "subprocess.Popen[str]"], runs: int) -> dict[str, list[Seconds]]:
    """One step of each side in turn; the first warms all of them up."""
    times: dict[str, list[Seconds]] = {name: [] for name in sides}
    for run in range(-1, runs):
        for name, process in sides.items():
            print(file=process.stdin, flush=True)
            spent = Seconds(**json.loads(_line(process)))
            if run >= 0:
                times[name].append(spent)
            label = "warm-up" if run < 0 else f"run {run + 1}"
            print(f"{label}, {name}: {spent.sample:.1f} + {spent.learn:.1f} s, {spent.cpu:.1f} of CPU", flush=True)
    return times


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise SystemExit("a side ended; what it said is above")
    return line


def show(job: Job, times: dict[str, list[Seconds]]) -> None:
    """Medians of the parts, and of the ratios run by run."""
    if len(counts := {spent.written for side in times.values() for spent in side}) != 1:
        raise SystemExit(f"the sides wrote different numbers of tokens: {sorted(counts)}")
    lengths = sorted(len(example["ids"]) for batch in job.batches for example in batch)
    trained = f"LoRA of rank {job.rank}" if job.rank else "whole weights"
    print(f"\n{len(job.batches[0])} prompts of {lengths[0]} to {lengths[-1]} tokens x {job.rollouts} rollouts x {job.tokens} "
          f"tokens, {trained}; medians of {len(times['ours'])} steps, seconds\n")  # fmt: skip
    print(
        "| | sampling | learning | step | CPU | step, ours / this | CPU, ours / this |\n|---|---|---|---|---|---|---|"
    )
    ours = times["ours"]
    for name, spent in times.items():
        parts = zip(*((one.sample, one.learn, one.whole, one.cpu) for one in spent), strict=True)
        wall = _ratio([mine.whole / one.whole for mine, one in zip(ours, spent, strict=True)])
        cpu = _ratio([mine.cpu / one.cpu for mine, one in zip(ours, spent, strict=True)])
        told = "| |" if name == "ours" else f"| **{wall}** | {cpu} |"
        print(f"| {name} | " + " | ".join(f"{statistics.median(part):.1f}" for part in parts) + " " + told)


def _ratio(shares: list[float]) -> str:
    return f"{statistics.median(shares):.2f} ({min(shares):.2f}-{max(shares):.2f})"


if __name__ == "__main__":
    main()
