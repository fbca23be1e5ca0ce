"""`medverify rerank`: put the samples of a file in order, best first for each question."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from configs.appended import OutputError
from configs.settings import Settings
from eval.cases import BadLine
from eval.rerank.options import Detail, OutputOptions, Pairing
from eval.rerank.run import Done, Output, Watch, write_again
from eval.rerank.run import rerank as rerank_file
from eval.rerank.samples import ColumnError, Columns, Samples, check_columns
from eval.rerank.sources import Source, SourceError, open_source
from eval.rerank.writers import WriteError, check_format
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
    quiet_libraries,
    settings_from,
    waiting,
)
from medverify.cli.flags import refuse_judge_settings, refuse_unread
from medverify.cli.progress import RowsProgress
from medverify.cli.render import plain
from verifier.types import Status

if TYPE_CHECKING:
    from verifier.judge import Judge
    from verifier.remote import RemoteJudge

_TOLD = 10  # bad rows that are told at once; all of them are in OUT.rejected.jsonl
_INTERRUPTED = 128 + signal.SIGINT

Column = str | None


def rerank(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="Samples: *.jsonl, *.jsonl.gz, *.parquet; also *.json, *.csv, *.tsv, *.arrow.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="*.jsonl, *.jsonl.gz or *.parquet; run again to continue.")
    ],
    question_column: Annotated[str, typer.Option(help="Text of the question.")] = "question",
    trace_column: Annotated[
        str, typer.Option(help="The sample: a text or a list of steps. Inside samples that are objects: its key.")
    ] = "trace",
    options_column: Annotated[
        Column, typer.Option(help="Options: letter to text, or a list. `options` if there is such a column.")
    ] = None,
    samples_column: Annotated[
        Column, typer.Option(help="A list of samples: one row is a question with all of its samples.")
    ] = None,
    group_column: Annotated[
        Column, typer.Option(help="Same value: same question. Otherwise question and options tell.")
    ] = None,
    id_column: Annotated[Column, typer.Option(help="Names rows in pairs; otherwise their number does.")] = None,
    into: Annotated[str, typer.Option(help="Column that the judgment is written to.")] = "medverify",
    detail: Annotated[Detail, typer.Option(help="How much of the judgment is written.")] = Detail.SCORES,
    keep_best: Annotated[
        int | None, typer.Option(min=1, help="Keep so many of each question; only what was judged can be kept.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(min=0, max=1, help="Keep what has at least this p_correct; of pairs: the chosen.")
    ] = None,
    pairs: Annotated[
        Pairing | None, typer.Option(help="Write preference pairs instead: best with worst, or all of a question.")
    ] = None,
    min_margin: Annotated[
        float, typer.Option(min=0, max=1, help="Of pairs: difference of p_correct that chosen has to rejected.")
    ] = 0.0,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Judge again what an outage or a deadline left unjudged.")
    ] = False,
    from_judgments: Annotated[
        Path | None,
        typer.Option(help="OUT.judgments.jsonl of a finished run over the same file: no judge is needed."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running `medverify serve` judges.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="With --url: cases in flight at once.")] = 16,
    deadline: Annotated[float, typer.Option(min=1, help="With --url: seconds for one case, waits included.")] = 600.0,
    config: ConfigOption = None,
    model: ModelOption = None,
    overrides: SetOption = None,
) -> None:
    """Judge the samples of a file and write it best first for each question.

    One row is one sample, with its rows anywhere in the file, or (--samples-column) one question with all of its samples.
    Every column is kept; the judgment is added. A sample that could not be judged keeps its row with its status and no
    probability, last of its question.

    The run can be killed at any moment: the same command goes on where it stopped and ends with the same file. OUT.run.json,
    OUT.judgments.jsonl and OUT.rejected.jsonl (rows that could not be judged as they are) stand beside the output.

    Exit code: 0 all judged; 1 some could not be judged (their status says why); 2 bad input.
    """
    if pairs is not None and keep_best is not None:
        fail("--keep-best is for rows, --pairs for pairs: give one of them")
    _refuse_unread(context)
    options = OutputOptions(
        detail=detail, into=into, group=group_column, id=id_column, keep_best=keep_best, min_p=min_p, pairs=pairs,
        min_margin=min_margin,
    )  # fmt: skip
    settings = settings_from(config, overrides, model).settings
    target = Output(output)
    with _stopped_by_signals(), _told_as_messages():
        check_format(output)
        source = open_source(file)
        columns = Columns(question=question_column, trace=trace_column, options=options_column, samples=samples_column)
        samples = Samples(source, _settled(source, columns, options))
        target.check_free()
        if from_judgments is not None:
            with waiting("ranking"):
                done, made = write_again(samples, options, target, from_judgments)
        else:
            told = _Told(source)
            load = _loader(settings, url, concurrency, deadline, told.progress.say)
            with told.progress:
                done, made = rerank_file(load, samples, options, target, retry_failed=retry_failed, watch=told.watch)
        if not made:
            err.print(f"{output} is this run's output: nothing to do", highlight=False, soft_wrap=True)
    _tell(done, target, pairs=pairs is not None)
    unjudged = done.figures.samples - done.figures.statuses.get(Status.SCORED.value, 0)
    raise typer.Exit(BAD_INPUT if done.rejected else NOT_JUDGED if unjudged else OK)


def _refuse_unread(context: typer.Context) -> None:
    """End with a message for flags that the chosen mode does not read."""
    chosen = context.params
    if chosen["pairs"] is None:
        refuse_unread(context, ("min_margin", "id_column"), "it is for --pairs")
    else:
        refuse_unread(context, ("detail",), "pairs of --pairs have their probabilities, not the judgment")
    if chosen["from_judgments"] is not None:
        judging = ("retry_failed", "url", "concurrency", "deadline", "config", "model", "overrides")
        refuse_unread(context, judging, "with --from-judgments nothing is judged")
    elif chosen["url"] is None:
        refuse_unread(context, ("concurrency", "deadline"), "it is for --url")
    else:
        refuse_judge_settings(context, chosen["overrides"], ("judge.sampling.seed",))


def _settled(source: Source, columns: Columns, options: OutputOptions) -> Columns:
    """The columns, once it is known which there are."""
    content = "--samples-column" if columns.samples else "--trace-column"
    present = check_columns(
        source,
        {
            "--question-column": columns.question,
            content: columns.samples or columns.trace,
            "--options-column": columns.options,
            "--group-column": options.group,
            "--id-column": options.id,
        },
    )
    if options.into in present:
        fail(f"{source.path} has a column {options.into!r} already: name another for the judgment with --into")
    return columns.model_copy(update={"options": columns.options or ("options" if "options" in present else None)})


class _Told:
    """Shows how a run goes on."""

    def __init__(self, source: Source) -> None:
        self._source, self._bad = source, 0
        self.progress = RowsProgress(f"{source.unit}s")
        self.watch = Watch(
            on_progress=lambda progress: self.progress.update(progress.rows, progress.share),
            on_again=lambda count: self.progress.say(f"judging again: {count:,} cases so far"),
            on_bad=self._on_bad,
            on_ranking=lambda: self.progress.say("ranking"),
        )

    def _on_bad(self, bad: BadLine) -> None:
        self._bad += 1
        if self._bad > _TOLD:
            return
        more = "; others are only written to the file of rejected rows" if self._bad == _TOLD else ""
        name = escape(str(self._source.path))
        err.print(f"[red]{name}[/], {escape(plain(str(bad)))}{more}", highlight=False, soft_wrap=True)


def _loader(
    settings: Settings, url: str | None, concurrency: int, deadline_s: float, report: Callable[[str], None]
) -> Callable[[], "Judge | RemoteJudge"]:
    """Gives the judge when it is needed."""

    def load() -> "Judge | RemoteJudge":
        if url is not None:
            from verifier.remote import RemoteJudge

            report(f"asking {url} who judges there")
            seed = settings.judge.sampling.seed
            return RemoteJudge.connect(url, seed=seed, deadline_s=deadline_s, concurrency=concurrency)
        quiet_libraries()
        from medverify.assemble import load_judge

        return load_judge(settings, report, reproducible=True)

    return load


def _tell(done: Done, target: Output, *, pairs: bool) -> None:
    table = Table(show_header=False)
    failed = {status: count for status, count in done.figures.statuses.items() if status != Status.SCORED.value}
    rows = {
        "samples": done.figures.samples,
        "judged": done.figures.samples - sum(failed.values()),
        **{f"not judged: {status}": count for status, count in failed.items()},
        "questions": done.figures.questions,
        "questions without a judged sample": done.figures.unjudged_questions,
        f"rejected, in {target.rejected.name}": done.rejected,
        "pairs written" if pairs else "rows written": done.lines,
    }
    for name, count in rows.items():
        table.add_row(escape(name), f"{count:,}")
    for name, p in (
        ("mean p(1) of all judged", done.figures.mean_p),
        ("mean p(1) of the best", done.figures.mean_best_p),
    ):
        table.add_row(name, "—" if p is None else f"{p:.3f}")
    err.print(table)


@contextmanager
def _told_as_messages() -> Iterator[None]:
    try:
        with mended_by_user():
            yield
    except (OutputError, ColumnError, SourceError, WriteError, OSError) as error:
        fail(error)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does, and either with a word on how to go on."""

    def stop(_: int, frame: FrameType | None) -> None:
        if callable(interrupt := signal.getsignal(signal.SIGINT)):  # asyncio has its own while it runs
            interrupt(signal.SIGINT, frame)

    # For what runs in the background shells ignore Ctrl-C, and asyncio then has no way to be interrupted: give it one that
    # only SIGTERM takes.
    in_background = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if in_background:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        err.print("stopped; what was judged is kept, and the same command goes on from there", highlight=False)
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
        if in_background:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops one that is pending
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
