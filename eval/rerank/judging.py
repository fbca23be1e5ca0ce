"""Judging the samples of a file in waves of fixed composition, in the order of the file."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from configs.durable import publish
from eval.cases import BadLine
from eval.outage import Losses
from eval.rerank.judgments import Identity, JudgmentsFile, Kept, entries
from eval.rerank.samples import Samples
from eval.run import Judging
from verifier.types import OUTAGES, Case, Judgment

OnBad = Callable[[BadLine], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is."""

    judged: int  # cases, those of earlier runs included
    rows: int  # number of the last row
    share: float  # of the file, 0 to 1


async def judge_file(
    judge: Judging, samples: Samples, file: JudgmentsFile, kept: Kept, on_bad: OnBad = lambda _: None
) -> AsyncIterator[Progress]:
    """Judge what is not judged yet, wave by wave, into the file.

    Args:
        judge: who judges.
        samples: the file, and where they are in it.
        file: open, and resumed with the identity of this run.
        kept: what `resume` found in it.
        on_bad: told of each row, or sample, that cannot be judged as it is.

    Raises:
        OutageError: nothing can be judged any more; what was judged stays.
        SourceError: the input is damaged; what was judged stays.
    """
    if kept.finished:
        return
    count, losses = kept.count, Losses(file.path)
    cases = samples.cases_after(kept.last, on_bad)
    while wave := list(islice(cases, judge.max_together)):
        judgments = await judge_wave(judge, wave)
        file.append(judgments)
        count += len(wave)
        losses.saw(lost=all(judgment.status in OUTAGES for judgment in judgments), detail=judgments[-1].detail)
        yield Progress(count, int(wave[-1].id.partition(".")[0]), samples.source.read)
    file.finish(count)


async def judge_again(judge: Judging, samples: Samples, identity: Identity, path: Path) -> AsyncIterator[int]:
    """Judge the waves again in which an outage or a deadline left a case unjudged; yields how many cases that was so far.

    The finished file at `path` is replaced by one in which those waves are as if nothing had happened to them. A wave is
    judged as a whole because its numbers follow from its composition. Killed, it goes on where it stopped.

    Raises:
        ResumeError: another run is doing this.
    """
    if not any(entry.status in OUTAGES for entry in entries(path)):
        return
    with JudgmentsFile(path.with_name(f"{path.name}.retry")) as file:
        kept = file.resume(identity)
        cases, old = samples.cases_after((0, -1), lambda _: None), entries(path)
        count = again = 0
        while before := list(islice(old, identity.wave)):
            wave = list(islice(cases, len(before)))
            count += len(before)
            if count <= kept.count:
                continue
            if any(entry.status in OUTAGES for entry in before):
                file.append(await judge_wave(judge, wave))
                again += len(wave)
                yield again
            else:
                file.add(b"".join(entry.text for entry in before), sync=False)
        if not kept.finished:
            file.finish(count)
        publish(file.path, path)


async def judge_wave(judge: Judging, wave: list[Case]) -> list[Judgment]:
    """Judge one wave; without what depends on a clock."""
    return [judgment.without_clock() for judgment in await judge.verify_together(wave)]
