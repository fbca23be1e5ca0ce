"""What warm-up, search, reinforcement learning and the curriculum's filter are worth: five judges on one closed world.

    python -m benchmarks.ablation -o FOLDER [--seed 0] [--questions 100] [--steps N] [--warm-up-steps N] [--config closed-world]
                                  [--set section.key=value …]

Trains, beside the untrained judge (guided, with search), and measures on drugs that no training saw:

- `warm-up`: imitates demonstrations, nothing else;
- `RL, no tool`: warmed up on demonstrations without search, then Dr.GRPO; it never searches;
- `RL`: Dr.GRPO with search on examples as the pool gives them;
- `RL, filter`: the same on examples that pass the variance gate.

All of Dr.GRPO starts from the same warm-up, where it has the tool, and takes the same number of steps. Kill it at any moment: the
same command goes on. The folder keeps every run; `table.md` is the table that is printed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from configs.durable import write_whole
from curriculum.closed_world.world import QUESTION_KINDS, Recipe
from medverify.cli.train import training_file

_WORLD = Path("closed-world")
_MEASURED = ("judge.mode=free", "judge.sampling.temperature=0", "retrieval.index=test-index")


@dataclass(frozen=True)
class Arm:
    """One judge of the table."""

    name: str
    tool: bool = True
    trained_by: str = "nothing"  # or "warm-up", "rl"
    gates: bool = False

    @property
    def folder(self) -> str:
        return self.name.replace(",", "").replace(" ", "-")


WARM_UP = Arm("warm-up", trained_by="warm-up")
BLIND_WARM_UP = Arm("warm-up, no tool", tool=False, trained_by="warm-up")
ARMS = (
    Arm("untrained, guided"),
    WARM_UP,
    Arm("RL, no tool", tool=False, trained_by="rl"),
    Arm("RL", trained_by="rl"),
    Arm("RL, filter", trained_by="rl", gates=True),
)


def main() -> None:
    """Train what is not trained, measure what is not measured, and print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--config", default="closed-world", help="training config: a shipped name or a path")
    parser.add_argument("--seed", type=int, default=0, help="of the world and of training")
    parser.add_argument("--drugs", type=int, default=200, help="of each world")
    parser.add_argument("--questions", type=int, default=100, help="measured on, of the test world; all their traces")
    parser.add_argument("--warm-up-steps", type=int, help="in place of the config's")
    parser.add_argument("--steps", type=int, help="of Dr.GRPO in each iteration, in place of the config's")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="section.key=value",
                        help="a setting of judge, retrieval or policy")  # fmt: skip
    options = parser.parse_args()
    folder: Path = options.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    make_world(folder, options.seed, options.drugs)
    config = yaml.safe_load(training_file(options.config).read_text(encoding="utf-8"))
    for arm in (WARM_UP, BLIND_WARM_UP, *ARMS):
        train(folder, arm, config, options)
    for arm in ARMS:
        measure(folder, arm, config, options)
    table = tabulate([(arm, read(folder, arm)) for arm in ARMS])
    write_whole(folder / "table.md", table)
    print(table)


def make_world(folder: Path, seed: int, drugs: int) -> None:
    """Both worlds and an index of each; what is there whole is kept."""
    if not (folder / _WORLD / "manifest.json").exists():
        questions = min(Recipe().questions, QUESTION_KINDS * drugs)
        run(folder, "world", str(_WORLD), "--seed", str(seed), "--drugs", str(drugs), "--questions", str(questions))
    for side in ("train", "test"):
        index = f"{side}-index"
        if not (folder / index / ".done").exists():
            run(folder, "index", "build", str(_WORLD / f"{side}.formulary.jsonl"), "-o", index)
            run(folder, "index", "add-bm25", index)
            (folder / index / ".done").touch()


def train(folder: Path, arm: Arm, config: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Train one judge, if it is trained and not there yet."""
    if arm.trained_by == "nothing" or (folder / arm.folder / "judge").exists():
        return
    file = folder / f"{arm.folder}.train.yaml"
    file.write_text(yaml.safe_dump(training_config(folder, arm, config, options)), encoding="utf-8")
    run(folder, "train", str(file), "-o", arm.folder, *_sets((f"run.seed={options.seed}", *options.overrides)))


def training_config(
    folder: Path, arm: Arm, config: Mapping[str, Any], options: argparse.Namespace
) -> Mapping[str, Any]:
    """The config as this arm has it."""
    judge, warm_up = dict(config["judge"]), dict(config["warm_up"])
    iterations = [dict(iteration) for iteration in config["iterations"]]
    if not arm.tool:
        judge["limits"] = {**judge.get("limits", {}), "max_searches": 0}
        warm_up["demonstrations"] = [str(_WORLD / "train.demonstrations-without-search.jsonl")]
    if options.warm_up_steps is not None:
        warm_up["steps"] = options.warm_up_steps
    if arm.trained_by == "warm-up":
        iterations = []
    else:
        judge["adapter"] = str(folder / (WARM_UP if arm.tool else BLIND_WARM_UP).folder / "judge")
        warm_up = {}
        for iteration in iterations:
            iteration["gates"] = {**iteration.get("gates", {}), "enabled": arm.gates}
            if options.steps is not None:
                iteration["steps"] = options.steps
    retrieval = {**config["retrieval"], "index": "train-index"}
    return {**config, "judge": judge, "warm_up": warm_up, "iterations": iterations, "retrieval": retrieval}


def measure(folder: Path, arm: Arm, config: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Judge traces of the test world: as it was trained, but greedily; the untrained one in its own, guided mode."""
    judge = {"model": config["judge"]["model"]}
    overrides: Sequence[str] = ("retrieval.index=test-index",)
    if arm.trained_by != "nothing":
        judge = {**config["judge"], "adapter": str(folder / arm.folder / "judge")}
        overrides = _MEASURED if arm.tool else (*_MEASURED, "judge.limits.max_searches=0")
    file = folder / f"{arm.folder}.judge.yaml"
    file.write_text(yaml.safe_dump({"judge": judge, "retrieval": config["retrieval"]}), encoding="utf-8")
    own = [override for override in options.overrides if not override.startswith("policy.")]
    run(
        folder, "eval", str(_WORLD / "test"), "-o", f"{arm.folder}.measured", "-c", str(file),
        "--questions", str(options.questions), *_sets((*overrides, *own)),
    )  # fmt: skip


def read(folder: Path, arm: Arm) -> Mapping[str, Any]:
    """What was measured of a judge, and what its training drew."""
    measured = folder / f"{arm.folder}.measured"
    [pack] = json.loads((measured / "report.json").read_text(encoding="utf-8"))["packs"]
    judge = next(one for one in pack["verification"] if one["scorer"] == "judge")
    conduct = next(one for one in pack["conduct"] if one["scorer"] == "judge")
    lines = (measured / "judgments" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    scores = [score for line in lines if (score := json.loads(line)["format_score"]) is not None]
    return {
        **judge["figures"],
        "traces": judge["traces"],
        "well_formed": sum(score == 1 for score in scores) / len(scores) if scores else None,
        "searched": None if (never := conduct["never_searched"]["value"]) is None else 1 - never,
        "drawn": drawn(folder / arm.folder) if arm.trained_by == "rl" else None,
    }


def drawn(run_folder: Path) -> int:
    """Tokens that the policy wrote in training: in rollouts that were learned from, and in those that chose examples."""
    rows = map(json.loads, (run_folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    learned = sum(row.get("rollout_tokens", 0) for row in rows if row["stage"].startswith("iteration"))
    waves = (json.loads(line) for log in run_folder.glob("selection-*.jsonl") for line in log.read_text().splitlines())
    return int(learned) + sum(sum(one["tokens"]) for wave in waves for one in wave["candidates"])


def tabulate(rows: Sequence[tuple[Arm, Mapping[str, Any]]]) -> str:
    """The table, with 95 % intervals over questions."""
    columns = ("judge", "accuracy", "balanced accuracy", "AUROC", "well-formed", "searched", "rollout tokens")
    made = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for arm, found in rows:
        figures = (_figure(found[name]) for name in ("accuracy", "balanced accuracy", "AUROC"))
        shares = (_share(found[name]) for name in ("well_formed", "searched"))
        spent = "" if found["drawn"] is None else f"{found['drawn']:,}"
        made.append(f"| {arm.name} | " + " | ".join((*figures, *shares, spent)) + " |")
    return "\n".join(made) + f"\n\n{min(found['traces'] for _, found in rows):,} traces.\n"


def run(folder: Path, *command: str) -> None:
    """One command of `medverify` in the folder; what it prints is shown.

    Raises:
        SystemExit: it failed.
    """
    print("medverify", *command, file=sys.stderr, flush=True)
    start = "from medverify.cli import main; main()"
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    env = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONPATH": path}
    if code := subprocess.run([sys.executable, "-c", start, *command], check=False, cwd=folder, env=env).returncode:
        raise SystemExit(code)


def _sets(overrides: Sequence[str]) -> list[str]:
    return [part for override in overrides for part in ("--set", override)]


def _figure(figure: Mapping[str, float | None]) -> str:
    if figure["value"] is None:
        return ""
    return f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


if __name__ == "__main__":
    main()
