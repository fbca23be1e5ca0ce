"""`medverify train`: train a judge by reinforcement learning on one machine."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medverify.cli.common import SetOption, err, fail, mended_by_user, out, quiet_libraries
from medverify.cli.progress import counted_progress

TrainingConfigArgument = Annotated[
    str, typer.Argument(help="Training config: a shipped name (see docs/training.md) or a path.")
]

if TYPE_CHECKING:
    from rich.progress import TaskID

    from curriculum.run import Run
    from curriculum.settings import TrainSettings
    from curriculum.trainer import Tell, Told, Trainer
    from curriculum.warm_up import Lesson

_SHOWN = (
    "reward",
    "correctness",
    "format",
    "said_1",
    "searched",
    "frac_reward_zero_std",
    "loss",
    "verdict_loss",
    "kept",
)


def train(
    config: TrainingConfigArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the run; of one that was cut off, it goes on.")
    ],
    overrides: SetOption = None,
) -> None:
    """Train a judge: warm up on demonstrations, then choose, roll out and learn, iteration by iteration.

    Kill it at any moment: the same command goes on from the last checkpoint, with the numbers that it would have had. The folder
    holds the exact settings, a line of metrics for each step, curves, episodes to read, and the judge that came out:

        medverify train closed-world -o runs/first
        medverify eval PACK --set judge.adapter=runs/first/judge --set judge.mode=free -o runs/first/test

    A judge that was trained is measured on packs it was not trained on, before it is believed.
    """
    quiet_libraries()
    with mended_by_user():
        from configs.appended import OutputError
        from configs.load import load_settings
        from curriculum.policy.policy import PolicyError
        from curriculum.pool.errors import PoolError
        from curriculum.rollouts import OutageError
        from curriculum.settings import TrainSettings
        from curriculum.warm_up import DemonstrationError
        from verifier.packs import PackError

        settings = load_settings(training_file(config), os.environ, overrides or [], TrainSettings).settings
        try:
            _train(settings, output)
        except (
            OutputError,
            OSError,
            PolicyError,
            PoolError,
            DemonstrationError,
            PackError,
            FloatingPointError,
            OutageError,
        ) as error:
            fail(error)
        except KeyboardInterrupt:
            err.print(f"stopped; the same command goes on from the last checkpoint in {output}")
            sys.exit(130)
    out.print(f"The judge is in {output / 'judge'}; its curves in {output / 'curves.svg'}.", highlight=False)


def _train(settings: "TrainSettings", output: Path) -> None:
    from curriculum.curves import draw_curves
    from curriculum.held_out import read_held_out
    from curriculum.policy.policy import Policy
    from curriculum.pool.load import load_pool
    from curriculum.run import Run
    from curriculum.trainer import Trainer
    from curriculum.warm_up import lesson, read_demonstrations
    from medverify.assemble import load_judge
    from verifier.engines.transformers import TransformersEngine

    with Run.open(output, settings) as run:
        pool = load_pool(settings.guarded_pool).pool
        held_out = read_held_out(settings.held_out)
        demonstrations = read_demonstrations(settings.warm_up.demonstrations)
        judge = load_judge(_with_episodes_of_its_own(settings), _say, reproducible=True)
        engine = judge.engine
        assert isinstance(engine, TransformersEngine)  # noqa: S101 - the settings allow no other
        _say(f"loading the weights of {engine.path.name} once more, to train them")
        policy = Policy(engine.path, settings.policy, settings.run.seed, engine.adapter)
        lessons = [
            lesson(one, judge.prompt, engine.tokenizer, settings.warm_up.verdict_weight) for one in demonstrations
        ]
        with _telling(run, settings) as tell:
            trainer = Trainer(settings, judge, engine, policy, pool, held_out, run, tell)
            asyncio.run(_to_the_end(trainer, lessons))
        draw_curves(run.metrics(), output / "curves.svg")


async def _to_the_end(trainer: "Trainer", lessons: Sequence["Lesson"]) -> None:
    try:
        await trainer.train(lessons)
    finally:
        await trainer.judge.aclose()


def _with_episodes_of_its_own(settings: "TrainSettings") -> "TrainSettings":
    """Free episodes, and no verdict but the policy's own: what is forced on it is nothing to learn from."""
    judge = settings.judge.model_copy(update={"mode": "free", "force_verdict": False})
    return settings.model_copy(update={"judge": judge})


@contextmanager
def _telling(run: "Run", settings: "TrainSettings") -> Iterator["Tell"]:
    """A bar for each stage on a terminal, a line for each step elsewhere, and whatever else is asked for."""
    from curriculum.curves import draw_curves
    from curriculum.trackers import trackers

    others = trackers(settings, run.folder)
    tasks: dict[str, TaskID] = {}
    with counted_progress() as bar:

        def tell(told: "Told") -> None:
            for other in others:
                other(told)
            if told.step % settings.run.checkpoint_every == 0:
                draw_curves(run.metrics(), run.folder / "curves.svg")
            words = ", ".join(f"{name} {value:.3g}" for name in _SHOWN if (value := told.numbers.get(name)) is not None)
            if not err.is_terminal:
                _say(f"{told.stage} {told.step}/{told.steps or '?'}: {words}")
            elif told.steps:
                if told.stage not in tasks:
                    tasks[told.stage] = bar.add_task(told.stage, total=told.steps)
                bar.update(tasks[told.stage], completed=told.step, description=f"{told.stage} {words}")

        yield tell


def training_file(config: str) -> Path:
    """The file meant by the name of a shipped training config or by a path.

    Raises:
        SettingsError: it is neither.
    """
    from configs.load import SHIPPED, SettingsError

    shipped = {file.stem: file for file in (SHIPPED / "train").glob("*.yaml")}
    if config in shipped:
        return shipped[config]
    path = Path(config).expanduser()
    if not path.is_file():
        raise SettingsError([f"no training config {config}; shipped: {', '.join(sorted(shipped))}"])
    return path


def _say(words: str) -> None:
    err.print(words, highlight=False, soft_wrap=True)
