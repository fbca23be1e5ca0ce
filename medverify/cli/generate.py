"""`medverify generate`: N traces for each question of a pack."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from configs.appended import OutputError
from configs.settings import Settings
from eval.benchmarks.fetch import read_provenance
from eval.benchmarks.schema import BenchmarkError
from eval.generate import Cost, Generation, GenerationError, Sampling, TraceLine, load_generator_prompt
from eval.journal import Journal
from medverify.cli.common import (
    NOT_JUDGED,
    OK,
    ConfigOption,
    JsonOption,
    SetOption,
    fail,
    mended_by_user,
    out,
    quiet_libraries,
    settings_from,
    waiting,
)
from medverify.cli.flags import refuse_unread
from medverify.cli.progress import counted_progress
from verifier.packs import PackError, QuestionRow, read_questions, write_rows


def generate(
    context: typer.Context,
    pack: Annotated[
        Path, typer.Argument(help="PREFIX of the questions: .questions.jsonl or .jsonl.gz.", metavar="PACK")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="PREFIX of the pack to make; run again to continue it.")
    ],
    samples: Annotated[int, typer.Option(help="Traces per question.")] = 16,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The generator: a name from `medverify models`, or a folder.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy: then one sample.")] = 0.7,
    top_p: Annotated[float, typer.Option(help="Nucleus mass that is sampled from.")] = 0.95,
    max_tokens: Annotated[int, typer.Option(help="Tokens of one trace.")] = 1024,
    seed: Annotated[int, typer.Option(help="Of the run; each trace's own is derived from it.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Take the first so many questions only.")] = None,
    prompt: Annotated[
        Path | None, typer.Option(help="Prompt file with {question} once, in place of the shipped one.")
    ] = None,
    prompt_price: Annotated[float, typer.Option(min=0, help="Price of a million prompt tokens.")] = 0.0,
    written_price: Annotated[float, typer.Option(min=0, help="Price of a million written tokens.")] = 0.0,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Make again what could not be made.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Let a model reason about each question of a pack several times, and write the traces as a pack.

    The engine and its limits are those of the settings under `judge` (--config, --set judge.transformers.max_sequences=32);
    nothing else of a judge is loaded. The run can be killed at any moment: the same command goes on where it stopped and,
    with the embedded engine, ends with the same file.

    Exit code: 0 all made; 1 some could not be made (their rows say why, and readers leave them out); 2 bad input.
    """
    if temperature == 0:
        refuse_unread(context, ("top_p",), "at --temperature 0 the likeliest token is taken")
    settings = settings_from(config, overrides, model).settings
    try:
        sampling = Sampling(samples=samples, temperature=temperature, top_p=top_p, max_tokens=max_tokens, seed=seed)
        questions = read_questions(pack)[:limit]
        _place(output, questions)
        with Journal(Path(f"{output}.traces.jsonl"), TraceLine, noun="trace") as journal:
            generation = _load(settings, questions, sampling, prompt)
            generation.check()
            done = generation.resume(journal, retry_failed=retry_failed)
            write_rows(Path(f"{output}.provenance.json"), [_provenance(pack, generation)])
            with mended_by_user():
                lines = asyncio.run(_run(generation, done, journal))
    except ValidationError as error:
        fail("; ".join(f"{'.'.join(map(str, item['loc'])) or 'sampling'}: {item['msg']}" for item in error.errors()))
    except (BenchmarkError, GenerationError, PackError, OutputError, OSError) as error:
        fail(error)
    cost = Cost.of(lines)
    _show(cost, cost.price(prompt_price, written_price), as_json=as_json)
    raise typer.Exit(NOT_JUDGED if cost.failed else OK)


def _load(settings: Settings, questions: list[QuestionRow], sampling: Sampling, prompt: Path | None) -> Generation:
    with mended_by_user(), waiting("starting") as status:
        quiet_libraries()
        from medverify.assemble import load_generator

        text = load_generator_prompt(prompt)
        engine, name = load_generator(settings, status.update)
        return Generation(engine, name, text, sampling, questions)


async def _run(generation: Generation, done: list[TraceLine], journal: Journal[TraceLine]) -> list[TraceLine]:
    lines = list(done)
    with counted_progress() as progress:
        task = progress.add_task("generating", total=generation.total, completed=len(done))
        async for wave in generation.waves(len(done), journal):
            journal.append(wave)
            lines += wave
            progress.update(task, completed=len(lines))
    await generation.engine.aclose()
    return lines


def _place(prefix: Path, questions: list[QuestionRow]) -> None:
    """Put the questions where their traces will be, or see that it is these that are there.

    Raises:
        OutputError: other questions, or finished traces, are there.
    """
    if (finished := Path(f"{prefix}.traces.jsonl.gz")).exists():
        raise OutputError(f"{finished} is there already; name another PREFIX with -o")
    path = Path(f"{prefix}.questions.jsonl.gz")
    if path.exists() or Path(f"{prefix}.questions.jsonl").exists():
        if read_questions(prefix) != questions:
            raise OutputError(f"{prefix} holds other questions than these; name another PREFIX with -o")
        return
    prefix.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, (question.model_dump(exclude_unset=True) for question in questions))


def _provenance(pack: Path, generation: Generation) -> dict[str, object]:
    """What `medverify benchmark show PREFIX` tells of the traces, and of the questions where their pack says it."""
    known = Path(f"{pack}.provenance.json")
    about = {"traces_per_question": generation.sampling.samples, "questions": len(generation.questions)}
    of_questions = read_provenance(pack) if known.is_file() else {"source": pack.name}
    return {"generation": generation.described | about, "questions": of_questions}


def _show(cost: Cost, price: float, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(cost) | {"price": price}))  # noqa: T201
        return
    made = cost.traces - cost.failed
    out.print(
        f"{made:,} traces: {cost.right:,} with the right answer, {cost.unreadable:,} without a readable one, "
        f"{cost.cut:,} cut at the limit of tokens; {cost.failed:,} could not be made\n"
        f"{cost.prompt_tokens:,} prompt tokens, {cost.written_tokens:,} written{f'; cost {price:,.2f}' if price else ''}",
        highlight=False,
    )
