"""`medverify verify`: judge a file."""

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from configs.appended import OutputError
from configs.reasons import reason
from configs.settings import Settings
from eval.cases import BadLine, read_cases
from eval.journal import to_line
from eval.run import Journal, judge_waves
from medverify.cli.common import (
    BAD_INPUT,
    NOT_JUDGED,
    OK,
    ConfigOption,
    ModelOption,
    SetOption,
    err,
    fail,
    mended_by_user,
    out,
    quiet_libraries,
    settings_from,
    waiting,
)
from medverify.cli.flags import refuse_unread
from medverify.cli.progress import counted_progress
from medverify.cli.render import panel, plain, summary, table
from verifier.packs import PackError, read_pack
from verifier.types import Case, Judgment, Status

if TYPE_CHECKING:
    from verifier.judge import Judge


def verify(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(help="JSON or JSONL, gzipped or not; - reads standard input.", metavar="FILE|-")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Append judgments to this JSONL file; run again to continue it."),
    ] = None,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", help="With -o: judge the waves again that an outage or a deadline hit."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print judgments as JSON lines instead of a table.")] = False,
    traces: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="FILE is a pack (PREFIX of .questions.jsonl and .traces.jsonl); judge so many traces a question.",
        ),
    ] = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    overrides: SetOption = None,
) -> None:
    """Judge the cases of a file.

    Each line is {"id", "question", "options" (optional), "trace"}; a trace is a text or a list of steps. Lines that are not
    cases are reported on standard error with line, field and what was expected; the others are judged all the same.

    With -o the run can be killed at any moment: the same command goes on where it stopped and ends with the same file.

    Exit code: 0 all judged; 1 some could not be judged (their status says why); 2 bad input.
    """
    if output is None:
        refuse_unread(context, ("retry_failed",), "only a file of -o keeps what failed")
    settings = settings_from(config, overrides, model).settings
    cases, bad = _read(file, traces)
    for line in bad:
        err.print(f"[red]{escape(file)}[/], {escape(plain(str(line)))}", highlight=False, soft_wrap=True)
    if not cases:
        fail(f"{file}: no case to judge")
    judgments = _judge(settings, cases, output, retry_failed=retry_failed, as_json=as_json)
    if not as_json:
        _show(cases, judgments)
    err.print(summary(judgments), highlight=False)
    if bad:
        err.print(f"{len(bad)} bad line(s) were left out", style="red")
        raise typer.Exit(BAD_INPUT)
    raise typer.Exit(OK if all(judgment.status is Status.SCORED for judgment in judgments) else NOT_JUDGED)


def _read(file: str, traces: int | None) -> tuple[list[Case], list[BadLine]]:
    try:
        if traces is not None:
            return [labelled.case for labelled in read_pack(Path(file), traces)], []
        source = sys.stdin.buffer if file == "-" else Path(file)
        records = list(read_cases(source))
    except (OSError, EOFError, PackError) as error:
        pack = any(Path(f"{file}.questions.jsonl{end}").is_file() for end in ("", ".gz"))
        fail(
            f"cannot read {file}: {reason(error)}"
            + ("; it is a pack: add --traces 1" if pack and traces is None else "")
        )
    return [r for r in records if isinstance(r, Case)], [r for r in records if isinstance(r, BadLine)]


def _judge(
    settings: Settings, cases: list[Case], output: Path | None, *, retry_failed: bool, as_json: bool
) -> list[Judgment]:
    with ExitStack() as stack:
        try:
            journal = stack.enter_context(Journal(output)) if output else None
        except (OutputError, OSError) as error:
            fail(error)
        with mended_by_user(), waiting("starting") as status:
            quiet_libraries()
            from medverify.assemble import load_judge

            judge = load_judge(settings, status.update, reproducible=True)
        try:
            done = journal.resume(judge, cases, retry_failed=retry_failed) if journal else []
            with mended_by_user():
                return asyncio.run(_judge_rest(judge, cases, done, journal, as_json=as_json))
        except OutputError as error:
            fail(error)


async def _judge_rest(
    judge: "Judge", cases: list[Case], done: list[Judgment], journal: Journal | None, *, as_json: bool
) -> list[Judgment]:
    judgments = list(done)
    if as_json:
        _print_lines(done)
    await judge.warm_up()
    with counted_progress() as progress:
        task = progress.add_task("judging", total=len(cases), completed=len(done))
        async for wave in judge_waves(judge, cases, len(done), journal):
            if journal:
                journal.append(wave)
            if as_json:
                _print_lines(wave)
            judgments += wave
            progress.update(task, completed=len(judgments))
    await judge.aclose()
    return judgments


def _print_lines(judgments: list[Judgment]) -> None:
    sys.stdout.buffer.write(b"".join(map(to_line, judgments)))
    sys.stdout.buffer.flush()


def _show(cases: list[Case], judgments: list[Judgment]) -> None:
    out.print(panel(cases[0], judgments[0]) if len(cases) == 1 else table(judgments))
