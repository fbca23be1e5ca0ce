"""The judging that `medverify eval` does: a judge and its variants over all packs, into the folder of the run."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from configs.settings import STARTER, Settings
from eval.judging import WITHOUT_SEARCH, Pass, Variant, variants
from eval.run import Journal
from eval.runfolder import Evidence, PackRun, Run, RunFolder, ScorerRun, Timing, settings_of
from medverify import __version__
from medverify.cli.common import mended_by_user, quiet_libraries, waiting
from medverify.cli.judging_progress import JudgingProgress
from verifier.remote import RemoteJudge
from verifier.types import Judgment

if TYPE_CHECKING:
    from eval.report.schema import JudgeFacts
    from retrieval.passage import Passage
    from verifier.judge import Judge
    from verifier.packs import LabelledCase


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be judged, and how often."""

    prefixes: Mapping[str, Path]  # of the packs, by name
    cases: Mapping[str, Sequence["LabelledCase"]]  # chosen from them
    traces: int | None
    questions: int | None
    sample_seed: int
    seeds: int = 1
    without_search: bool = False
    retry_failed: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A running `medverify serve` that judges."""

    url: str
    concurrency: int  # cases in flight at once
    deadline_s: float  # for one case, waits included


def connect(service: Service, seed: int) -> "RemoteJudge":
    """The judge of a service; or the end, with a message."""
    with mended_by_user(), waiting(f"asking {service.url} who judges there"):
        return RemoteJudge.connect(
            service.url, seed=seed, deadline_s=service.deadline_s, concurrency=service.concurrency
        )


def load(settings: Settings) -> "Judge":
    """The judge that the settings name, set to give the same numbers in every run; or the end, with a message."""
    with mended_by_user(), waiting("starting") as status:
        quiet_libraries()
        from medverify.assemble import load_judge

        return load_judge(settings, status.update, reproducible=True)


def judge_packs(judge: "Judge | RemoteJudge", settings: Settings, wanted: Wanted, folder: RunFolder) -> None:
    """Judge everything that is not judged yet, and keep all that a report needs.

    Of a judge at a URL the seed is set, and what the service tells of itself is kept; where it searches cannot be looked into.
    What the folder holds is looked at first: a run that does not belong there leaves `run.json` as it was.

    Raises:
        RunError, ResumeError: the folder holds judgments of another run, or another command is writing into it.
        OutputError, OSError: the folder cannot be written.
    """
    folder.create()
    todo = variants(settings.judge, wanted.seeds, without_search=wanted.without_search)
    with folder.held(), ExitStack() as files:
        ours = _run(judge, settings, todo, wanted)
        folder.check_fits(ours)
        passes = [
            Pass(
                files.enter_context(Journal(folder.journal(name, variant.suffix))),
                variant.of(judge),
                [labelled.case for labelled in cases],
                retry_failed=wanted.retry_failed,
            )
            for name, cases in wanted.cases.items()
            for variant in todo
        ]
        run = folder.write_run(ours)
        asyncio.run(_judge_all(judge, passes, len(todo) * sum(map(len, wanted.cases.values())), folder))
        # What a server holds cannot be looked into.
        if not isinstance(judge, RemoteJudge) and not settings.retrieval.index.startswith(("http://", "https://")):
            kept = [
                one
                for pack in run.packs
                for scorer in run.scorers_of(pack.name)
                for one in folder.judgments(pack.name, scorer.suffix)
            ]
            _look_up(settings.index_folder, judge.retriever.digest, kept, folder)


async def _judge_all(judge: "Judge | RemoteJudge", passes: Sequence[Pass], total: int, folder: RunFolder) -> None:
    if not isinstance(judge, RemoteJudge):
        await judge.warm_up()
    with JudgingProgress(total) as progress:

        def timed(timing: Timing) -> None:
            folder.add_timing(timing)
            progress.judged(timing.count)

        progress.found(sum(one.judged for one in passes))
        for one in passes:
            await one.finish(timed)
    await judge.aclose()


def _look_up(index: Path, digest: str, judgments: Sequence[Judgment], folder: RunFolder) -> None:
    """See that the passages shown are in the index."""
    from eval.evidence import unresolved

    with waiting("looking up the passages"):
        folder.write_evidence(Evidence(index=digest, unresolved=unresolved(judgments, _passages(index))))


def _passages(index: Path) -> Iterator["Passage"]:
    from retrieval.textstore import TextStore

    with TextStore(index) as texts:
        yield from (texts.get(row) for row in range(len(texts)))


def _run(judge: "Judge | RemoteJudge", settings: Settings, todo: Sequence[Variant], wanted: Wanted) -> Run:
    seeds = [variant.settings.sampling.seed for variant in todo if variant.scorer != WITHOUT_SEARCH]
    return Run(
        medverify=__version__,
        packs=[
            PackRun(name=name, prefix=str(path.resolve()), scorers=[variant.suffix for variant in todo])
            for name, path in wanted.prefixes.items()
        ],
        traces=wanted.traces,
        questions=wanted.questions,
        sample_seed=wanted.sample_seed,
        scorers=[
            ScorerRun(
                scorer=variant.scorer,
                suffix=variant.suffix,
                judge_id=variant.of(judge).judge_id,
                seed=variant.settings.sampling.seed,
            )
            for variant in todo
        ],
        judge=_facts(judge, settings, seeds),
        settings={"url": judge.url}
        if isinstance(judge, RemoteJudge)
        else settings_of({"judge": settings.judge.model_dump(), "retrieval": settings.retrieval.model_dump()}),
        calibrated_on=[]
        if isinstance(judge, RemoteJudge) or judge.calibration is None
        else judge.calibration.fitted.question_digests,
    )


def _facts(judge: "Judge | RemoteJudge", settings: Settings, seeds: list[int]) -> "JudgeFacts":
    """Who judges, as the settings say, or as the service says of itself."""
    from eval.report.schema import JudgeFacts

    if isinstance(judge, RemoteJudge):
        with mended_by_user():
            model, mode, index = (judge.told(field) for field in ("model", "mode", "index_digest"))
        where = f"of {judge.url}, {index[:12]}"
        return JudgeFacts(model=Path(model).name, mode=mode, judge_id=judge.judge_id, index=where, seeds=seeds)
    place = settings.retrieval.index
    return JudgeFacts(
        model=Path(settings.judge.model).name,
        mode=judge.mode,
        judge_id=judge.judge_id,
        index=place if place == STARTER or "://" in place else Path(place).name,
        seeds=seeds,
    )
