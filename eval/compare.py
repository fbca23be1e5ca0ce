"""Two runs on the traces that both have."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from configs.durable import write_whole
from eval.columns import Columns, join, whole_questions
from eval.evaluation.paired import differences
from eval.evaluation.scorers import Scorer
from eval.report import markdown, page, tables
from eval.report.schema import ComparedPack, Comparison
from eval.rescore import cases_of
from eval.runfolder import Run, RunError, RunFolder


@dataclass(frozen=True, slots=True)
class _Opened:
    """A run that has a judge."""

    name: str
    run: Run
    columns: dict[str, Columns]  # by pack, with the opinion of the configured judge
    digests: dict[str, dict[str, str]]  # by pack and trace: of what was judged


def compare(first: Path, second: Path) -> Comparison:
    """Paired differences between the judges of two runs, on the traces of like id and content in packs of like name.

    Raises:
        RunError: a folder is not that of a run with a judge, or the runs share no trace.
        ValueError: judgments and packs do not fit together.
        PackError: a pack cannot be read.
    """
    one, other = _open(first), _open(second)
    packs = [_pack(name, one, other) for name in one.columns if name in other.columns and _shared(name, one, other)]
    if not packs:
        raise RunError(f"{first} and {second} share no trace")
    return Comparison(first=_name(one, other), second=_name(other, one), packs=packs)


def write_comparison(folder: Path, found: Comparison) -> Path:
    """Write `comparison.json`, `comparison.md` and `comparison.html`; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    title, shown = f"{found.first} against {found.second}", tables.comparison(found)
    write_whole(folder / "comparison.json", found.model_dump_json(indent=1) + "\n")
    write_whole(folder / "comparison.md", markdown.document(title, shown))
    path = folder / "comparison.html"
    write_whole(path, page.page(title, tables=shown))
    return path


def _open(path: Path) -> _Opened:
    folder = RunFolder(path)
    run = folder.read_run()
    if not run.scorers:
        raise RunError(f"{path}: no judge ran there")
    cases = cases_of(run)
    judge = run.scorers[0]
    return _Opened(
        name=path.resolve().name,
        run=run,
        columns={name: join(found, folder.judgments(name, judge.suffix)) for name, found in cases.items()},
        digests={name: {one.case.id: one.case.digest for one in found} for name, found in cases.items()},
    )


def _shared(pack: str, one: _Opened, other: _Opened) -> list[str]:
    theirs = other.digests[pack]
    return [trace for trace, digest in one.digests[pack].items() if theirs.get(trace) == digest]


def _pack(name: str, one: _Opened, other: _Opened) -> ComparedPack:
    shared = _shared(name, one, other)
    first, second = (_rows(run.columns[name], shared) for run in (one, other))
    scorers = [
        Scorer(run.name, own.p, own.verdicts, own.come_to, is_judge=True)
        for run, own in ((one, first), (other, second))
    ]
    whole = first.take(whole_questions(first.questions, first.come_to & second.come_to))
    return ComparedPack(
        name=name,
        questions=len(set(first.questions)),
        traces=len(shared),
        come_to=len(set(whole.questions)),
        judged=int(((first.verdicts >= 0) & (second.verdicts >= 0)).sum()),
        rows=differences(first, *scorers),
    )


def _rows(columns: Columns, traces: list[str]) -> Columns:
    place = {trace: row for row, trace in enumerate(columns.traces)}
    return columns.take(np.asarray([place[trace] for trace in traces], dtype=np.int64))


def _name(run: _Opened, other: _Opened) -> str:
    """What to call a run: its folder, and its judge where folders are called the same."""
    judge = run.run.judge
    return run.name if run.name != other.name or judge is None else f"{run.name} ({judge.model}, {judge.judge_id[:8]})"
