"""`medverify eval`: judge packs, and report how good the judge is and what its choices are worth."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medverify.cli.common import (
    NOT_JUDGED,
    OK,
    ConfigOption,
    ModelOption,
    SetOption,
    err,
    fail,
    mended_by_user,
    out,
    settings_from,
)
from medverify.cli.flags import THERE, refuse_all_but, refuse_judge_settings, refuse_unread
from medverify.cli.grid import show

if TYPE_CHECKING:
    from configs.settings import Settings
    from eval.report.schema import Report
    from medverify.cli.evaluate_judging import Service
    from verifier.packs import LabelledCase

_NEEDED = {"numpy": "numpy", "matplotlib": "matplotlib", "jinja2": "Jinja2"}


def evaluate(
    context: typer.Context,
    packs: Annotated[
        list[Path] | None,
        typer.Argument(help="Packs: each the PREFIX of .questions.jsonl and .traces.jsonl.", metavar="PACK"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the run: judgments and report; the same command continues it."),
    ] = None,
    traces: Annotated[int | None, typer.Option(min=1, help="The first so many traces of each question.")] = None,
    questions: Annotated[int | None, typer.Option(min=1, help="A sample of so many whole questions a pack.")] = None,
    sample_seed: Annotated[int, typer.Option(min=0, help="Which sample.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Judge each trace with so many seeds, from judge.sampling.seed on.")
    ] = 1,
    without_search: Annotated[
        bool, typer.Option("--without-search", help="Judge once more with searching switched off, as a baseline.")
    ] = False,
    no_judge: Annotated[bool, typer.Option("--no-judge", help="Judge nothing: votes and baselines only.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Judge the waves again that an outage or a deadline hit.")
    ] = False,
    rescore: Annotated[
        bool, typer.Option("--rescore", help="Make the report of -o again from what is kept there; loads no model.")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="RUN_A RUN_B", help="Compare two runs on the traces they share.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running `medverify serve` judges.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="With --url: cases in flight at once.")] = 16,
    deadline: Annotated[float, typer.Option(min=1, help="With --url: seconds for one case, waits included.")] = 600.0,
    config: ConfigOption = None,
    model: ModelOption = None,
    overrides: SetOption = None,
) -> None:
    """Judge packs and report on the judge: verification, selection, calibration, searches, cost, baselines beside it.

    The folder gets every judgment, report.html, report.md, report.json and figures. It can be killed at any moment and goes on
    with the same command; other packs, more seeds and `--without-search` join what is there. With `--url` a running `medverify
    serve` judges; where it wants a key, set MEDVERIFY_API_KEY. `--rescore` needs neither model nor index; `--compare` puts two
    runs side by side.

    Exit code: 0 all judged; 1 some could not be judged (they are listed); 2 bad input.
    """
    _refuse_unread(context)
    _check_installed()
    if compare is not None:
        _compare(compare, output)
    elif rescore:
        _rescore(output, packs or [])
    elif not packs:
        fail("name a pack: the PREFIX of its .questions.jsonl and .traces.jsonl")
    elif no_judge:
        _without_judge(packs, output, traces, questions, sample_seed)
    else:
        _judge(
            packs, output, traces=traces, questions=questions, sample_seed=sample_seed, seeds=seeds,
            without_search=without_search, retry_failed=retry_failed,
            settings=settings_from(config, overrides, model).settings,
            service=_service(url, concurrency, deadline),
        )  # fmt: skip
        _rescore(output, packs)


def _service(url: str | None, concurrency: int, deadline_s: float) -> "Service | None":
    from medverify.cli.evaluate_judging import Service

    return None if url is None else Service(url, concurrency, deadline_s)


def _refuse_unread(context: typer.Context) -> None:
    """End with a message for flags that the chosen mode does not read."""
    chosen = context.params
    sample = ("packs", "output", "traces", "questions", "sample_seed")
    if chosen["compare"] is not None:
        refuse_all_but(context, ("compare", "output"), "--compare reads two runs and judges nothing")
    elif chosen["rescore"]:
        refuse_all_but(context, ("rescore", "packs", "output"), "--rescore reports what the folder of -o holds")
    elif chosen["no_judge"]:
        refuse_all_but(context, (*sample, "no_judge"), "with --no-judge nothing is judged")
    elif chosen["url"] is None:
        refuse_unread(context, ("concurrency", "deadline"), "it is for --url")
    else:
        refuse_unread(context, ("without_search",), THERE)
        refuse_judge_settings(context, chosen["overrides"], ("judge.sampling.seed",))
    if chosen["questions"] is None:
        refuse_unread(context, ("sample_seed",), "all questions are taken; --questions draws a sample")


def _judge(
    packs: list[Path], output: Path | None, *, settings: "Settings", service: "Service | None", traces: int | None,
    questions: int | None, sample_seed: int, seeds: int, without_search: bool, retry_failed: bool,
) -> None:  # fmt: skip
    from configs.appended import OutputError
    from eval.runfolder import RunError, RunFolder
    from medverify.cli.evaluate_judging import Wanted, connect, judge_packs, load

    if output is None:
        fail("name the folder of the run with -o: every judgment is kept there")
    if service is None and seeds > 1 and settings.judge.sampling.temperature == 0:
        err.print("judge.sampling.temperature is 0: all seeds will say the same", style="yellow")
    wanted = Wanted(
        prefixes={path.name: path for path in packs},
        cases=_read(packs, traces, questions, sample_seed),
        traces=traces,
        questions=questions,
        sample_seed=sample_seed,
        seeds=seeds,
        without_search=without_search,
        retry_failed=retry_failed,
    )
    judge = load(settings) if service is None else connect(service, settings.judge.sampling.seed)
    try:
        with mended_by_user():
            judge_packs(judge, settings, wanted, RunFolder(output))
    except (OSError, OutputError, RunError) as error:
        fail(error)


def _check_installed() -> None:
    absent = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if absent:  # told now rather than after a night of judging
        fail(f"not installed: {', '.join(absent)}. Mend it with: pip install 'medverify[eval]'")


def _read(
    packs: list[Path], traces: int | None, questions: int | None, sample_seed: int
) -> dict[str, "list[LabelledCase]"]:
    from eval.sample import sample_questions
    from verifier.packs import PackError, read_pack

    cases = {}
    for path in packs:
        if path.name in cases:
            fail(f"two packs are called {path.name}: their judgments would be kept in one file")
        try:
            cases[path.name] = sample_questions(read_pack(path, traces), questions, sample_seed)
        except (PackError, OSError) as error:
            fail(error)
        if not cases[path.name]:
            fail(f"{path}: no trace to evaluate")
    return cases


def _without_judge(
    packs: list[Path], output: Path | None, traces: int | None, questions: int | None, sample_seed: int
) -> None:
    from eval.evaluation.evaluate import evaluate as measure
    from eval.report.schema import Report
    from eval.report.write import write_report
    from eval.runfolder import RunFolder

    if output is not None and RunFolder(output).has_judgments():
        fail(f"{output} holds the report of a judge. Name another folder with -o, or make it again with --rescore")
    cases = _read(packs, traces, questions, sample_seed)
    with mended_by_user():
        report = Report(judge=None, packs=[measure(name, found) for name, found in cases.items()])
        if output is not None:
            err.print(f"report: {write_report(output, report)[0]}", highlight=False, markup=False)
    _show(report)


def _rescore(output: Path | None, packs: list[Path]) -> None:
    from eval.report.write import write_report
    from eval.rescore import cases_of, rescore
    from eval.runfolder import RunFolder
    from verifier.packs import PackError

    if output is None:
        fail("name the folder of the run with -o")
    folder = RunFolder(output)
    try:
        run = folder.read_run()
        report = rescore(folder, run, cases_of(run, packs))
        page, *_ = write_report(output, report)
    except (OSError, PackError, ValueError) as error:
        fail(error)
    _show(report)
    err.print(f"report: {page}", highlight=False, markup=False)
    unjudged = any(pack.failures or any(of.missing for of in pack.conduct) for pack in report.packs)
    raise typer.Exit(NOT_JUDGED if unjudged else OK)


def _compare(runs: tuple[Path, Path], output: Path | None) -> None:
    from eval.compare import compare, write_comparison
    from eval.report.tables import comparison
    from verifier.packs import PackError

    try:
        found = compare(*runs)
        if output is not None:
            err.print(f"comparison: {write_comparison(output, found)}", highlight=False, markup=False)
    except (OSError, PackError, ValueError) as error:
        fail(error)
    for table in comparison(found):
        show(table, out)


def _show(report: "Report") -> None:
    """What fits a terminal; the report has the rest."""
    from eval.report import tables

    if told := tables.unfinished(report):
        out.print(told, style="bold yellow", highlight=False)
    shown = [tables.overview(report)]
    for pack in report.packs:
        shown += [tables.votes(pack), *tables.verification(pack)[:1], tables.failures(pack.failures, 10)]
    for table in shown:
        if table is not None:
            show(table, out)
