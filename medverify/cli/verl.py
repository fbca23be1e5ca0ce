"""`medverify verl`: what a cluster run with verl needs from here."""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medverify.cli.common import JsonOption, ModelOption, SetOption, err, fail, mended_by_user, out, quiet_libraries
from medverify.cli.progress import counted_progress
from medverify.cli.train import TrainingConfigArgument, training_file

if TYPE_CHECKING:
    from curriculum.pool.pool import Pool
    from curriculum.selecting import Selection
    from curriculum.settings import TrainingConfig

HELP = "Train the judge with verl on a cluster: choose what an iteration trains on. See docs/verl.md."


def filter_pool(
    config: TrainingConfigArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the iteration's data; run again to continue.")
    ],
    iteration: Annotated[int, typer.Option(min=1, help="Which of the config's iterations, from 1.")] = 1,
    after: Annotated[
        Path | None, typer.Option(help="Folder of the iteration before: what it drew from the pool is not drawn again.")
    ] = None,
    model: ModelOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose what an iteration trains on, with the policy that is about to be trained, and write verl's data set.

    Draws candidates from the pool, samples a group of episodes for each, and keeps those that the policy gets both right and
    wrong, until the budget is full or the pool is spent. Any engine will do: judge.engine=vllm, or openai for a server.
    The folder gets train.parquet, validation.parquet if the config holds a pack out, pool.json and filter.json, which says
    what was refused and why.
    """
    from configs.appended import OutputError
    from configs.load import load_settings
    from curriculum.pool.errors import PoolError
    from curriculum.rollouts import OutageError
    from curriculum.settings import TrainingConfig
    from verifier.packs import PackError

    with mended_by_user():
        quiet_libraries()
        chosen = [f"judge.model={model}"] if model else []
        settings = load_settings(
            training_file(config), os.environ, [*chosen, *(overrides or [])], TrainingConfig
        ).settings
        if iteration > len(settings.iterations):
            fail(f"the config has {len(settings.iterations)} iterations; there is no iteration {iteration}")
        if settings.judge.sampling.temperature == 0:
            fail("judge.sampling.temperature must be above 0: a group of episodes that are all the same tells nothing")
        try:
            told = _filter(settings, output, iteration, after)
        except (OutputError, OutageError, PoolError, PackError, OSError) as error:
            fail(str(error))
    if as_json:
        print(json.dumps(told))  # noqa: T201 - for programs
        return
    kept = told["kept"]["0"] + told["kept"]["1"]
    refused = ", ".join(f"{count:,} {reason}" for reason, count in told["refused"].items()) or "none"
    out.print(f"{kept:,} of {told['seen']:,} candidates kept; refused: {refused}", highlight=False)
    if told["pool_spent"]:
        out.print("[yellow]The pool is spent[/]: the budget is not full.")
    out.print(f"verl's data set is in {output}.", highlight=False)


def _filter(settings: "TrainingConfig", output: Path, number: int, after: Path | None) -> dict[str, Any]:
    from configs import strict_json
    from configs.durable import write_whole
    from curriculum.held_out import read_held_out
    from curriculum.pool.load import load_pool
    from curriculum.verl_recipe.files import LOG, POOL, TRAIN, VALIDATION, begin, write_examples, write_report
    from medverify.assemble import load_judge

    pool = load_pool(settings.guarded_pool).pool
    if after is not None:
        pool.restore(strict_json.parse((after / POOL).read_bytes()))
    held_out = read_held_out(settings.held_out)
    # Free episodes and no verdict but the policy's own, as in training.
    free = settings.judge.model_copy(update={"mode": "free", "force_verdict": False})
    judge = load_judge(settings.model_copy(update={"judge": free}), _say)
    iteration = settings.iterations[number - 1]
    seed = settings.run.seed * 1000 + number
    made_with = {"judge": judge.judge_id, "iteration": iteration.model_dump(mode="json"), "seed": seed}
    pool.restore(begin(output, made_with, pool.state()))
    with counted_progress() as bar:
        task = bar.add_task("choosing", total=iteration.budget)

        def tell(so_far: "Selection") -> None:
            words = f"choosing, {so_far.admission.seen:,} candidates tried"
            bar.update(task, completed=len(so_far.examples), description=words)
            if not err.is_terminal:
                _say(f"{words}, {len(so_far.examples):,} kept")

        selection = asyncio.run(_selected(judge, pool, iteration, seed, output / LOG, tell))
    write_examples(output / TRAIN, selection.examples, judge.prompt)
    if held_out:
        write_examples(output / VALIDATION, held_out, judge.prompt)
    write_whole(output / POOL, json.dumps(pool.state()) + "\n")
    return dict(write_report(output, selection, made_with))


async def _selected(judge: Any, pool: "Pool", iteration: Any, seed: int, log: Path, tell: Any) -> "Selection":
    from curriculum.selecting import SelectionLog, select

    try:
        with SelectionLog(log) as kept:
            return await select(judge, pool, iteration, seed, kept, tell=tell)
    finally:
        await judge.aclose()


def _say(words: str) -> None:
    err.print(words, highlight=False, soft_wrap=True)
