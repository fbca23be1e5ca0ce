"""The judging that `medverify eval` does: a judge and its variants over all packs, into the folder of the run."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from configs.settings import STARTER, Settings
from eval.judging import WITHOUT_SEARCH, Variant, judge_into, variants
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

    Raises:
        RunError, ResumeError: the folder holds judgments of another run.
        OutputError, OSError: the folder cannot be written.
    """
    folder.create()
    todo = variants(settings.judge, wanted.seeds, without_search=wanted.without_search)
    folder.write_run(_run(judge, settings, todo, wanted))
    judgments = asyncio.run(_judge_all(judge, todo, wanted, folder))
    if isinstance(judge, RemoteJudge):
        return
    if not settings.retrieval.index.startswith(("http://", "https://")):  # what a server holds cannot be looked into
        _look_up(settings.index_folder, judge.retriever.digest, judgments, folder)


async def _judge_all(
    judge: "Judge | RemoteJudge", todo: Sequence[Variant], wanted: Wanted, folder: RunFolder
) -> list[Judgment]:
    judgments = list[Judgment]()
    if not isinstance(judge, RemoteJudge):
        await judge.warm_up()
    with JudgingProgress(len(todo) * sum(map(len, wanted.cases.values()))) as progress:

        def timed(timing: Timing) -> None:
            folder.add_timing(timing)
            progress.judged(timing.count)

        for name, cases in wanted.cases.items():
            for variant in todo:
                judgments += await judge_into(
                    folder.journal(name, variant.suffix),
                    variant.of(judge),
                    [labelled.case for labelled in cases],
                    retry_failed=wanted.retry_failed,
                    on_found=progress.found,
                    on_timing=timed,
                )
    await judge.aclose()
    return judgments


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
        packs=[PackRun(name=name, prefix=str(path.resolve())) for name, path in wanted.prefixes.items()],
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
