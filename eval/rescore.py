"""The report of a run folder, from what is kept there and the packs: no model, no index, no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.evaluation.evaluate import Judged, evaluate
from eval.judging import WITHOUT_SEARCH
from eval.report.schema import PackReport, Report
from eval.runfolder import Run, RunError, RunFolder, ScorerRun
from eval.sample import sample_questions
from verifier.packs import LabelledCase, read_pack


def cases_of(run: Run, prefixes: Sequence[Path] = ()) -> dict[str, list[LabelledCase]]:
    """The traces that a run is about, by pack.

    Args:
        run: what ran.
        prefixes: where packs of these names lie now, if no longer where they were.

    Raises:
        PackError: a pack cannot be read.
        RunError: a prefix names no pack of the run.
    """
    moved = {prefix.name: prefix for prefix in prefixes}
    if unknown := set(moved) - {pack.name for pack in run.packs}:
        raise RunError(
            f"the run has no pack {', '.join(sorted(unknown))}; it has {', '.join(p.name for p in run.packs)}"
        )
    places = {pack.name: moved.get(pack.name, Path(pack.prefix)) for pack in run.packs}
    return {
        name: sample_questions(read_pack(prefix, run.traces), run.questions, run.sample_seed)
        for name, prefix in places.items()
    }


def rescore(folder: RunFolder, run: Run, cases: Mapping[str, Sequence[LabelledCase]]) -> Report:
    """Measure what has been judged so far.

    Raises:
        ValueError: a file holds something else, or the packs are no longer those that were judged.
    """
    return Report(judge=run.judge, packs=[_pack(folder, run, name, found) for name, found in cases.items()])


def _pack(folder: RunFolder, run: Run, name: str, cases: Sequence[LabelledCase]) -> PackReport:
    return evaluate(name, cases, [_judged(folder, name, scorer) for scorer in run.scorers_of(name)], run.calibrated_on)


def _judged(folder: RunFolder, pack: str, scorer: ScorerRun) -> Judged:
    judgments, evidence = folder.judgments(pack, scorer.suffix), folder.read_evidence()
    return Judged(
        scorer=scorer.scorer,
        seed=None if scorer.scorer == WITHOUT_SEARCH else scorer.seed,
        judgments=judgments,
        seconds=folder.seconds_per_trace(folder.journal(pack, scorer.suffix), len(judgments)),
        missing_passages=None if evidence is None else evidence.unresolved,
    )
