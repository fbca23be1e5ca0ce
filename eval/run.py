"""Judging many cases into a file: reproducible, resumable, nothing lost.

Cases are judged in waves of fixed composition, in the order of the input; `eval.journal` keeps what is done.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from eval import journal
from eval.outage import Losses
from verifier.types import OUTAGES, Case, Judgment


class Judging(Protocol):
    """What a run needs of whatever judges: a `Judge` in this process, or a `RemoteJudge` at a URL."""

    @property
    def judge_id(self) -> str: ...

    @property
    def seed(self) -> int:
        """What judgments are drawn with."""
        ...

    @property
    def max_together(self) -> int:
        """Cases of a wave."""
        ...

    def calibrates(self, judgment: Judgment) -> bool:
        """Whether the judgment's `p_calibrated` is what this judge would give today."""
        ...

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> Sequence[Judgment]:
        """Judge a wave; what fails is a status."""
        ...


class Journal(journal.Journal[Judgment]):
    """The output file of a run: JSON lines of judgments in the order of the cases."""

    def __init__(self, path: Path, kind: type[Judgment] = Judgment) -> None:
        super().__init__(path, kind, noun="judgment")

    def resume(self, judge: Judging, cases: Sequence[Case], *, retry_failed: bool = False) -> list[Judgment]:
        """Read what is there, cut off what is not a complete wave, and return the judgments that stay.

        With `retry_failed` the run goes back to the first wave in which a case was not judged for reasons outside the
        judge: an outage, a deadline. Waves after it that have no such case are not judged again, see `known`.

        Raises:
            ResumeError: the file holds something other than the beginning of this run.
        """

        def mismatch(index: int, judgment: Judgment) -> str | None:
            case = cases[index]
            if judgment.judge_id != judge.judge_id:
                return f"is by another judge ({judgment.judge_id[:12]}…, now {judge.judge_id[:12]}…)"
            if judgment.id != case.id or judgment.case_digest != case.digest:
                return f"judges {judgment.id!r}, not the input's {case.id!r} as it is now"
            if not judge.calibrates(judgment):
                return "was judged with another calibration, or with none, which judge.calibration decides"
            return None if judgment.seed == judge.seed else f"has seed {judgment.seed}, not {judge.seed}"

        return self.go_on(
            len(cases), judge.max_together, mismatch, lambda judgment: retry_failed and judgment.status in OUTAGES
        )


async def judge_waves(
    judge: Judging, cases: Sequence[Case], done: int = 0, journal: Journal | None = None
) -> AsyncIterator[list[Judgment]]:
    """Judge `cases[done:]` wave by wave.

    Args:
        judge: who judges.
        cases: all of them.
        done: a multiple of the wave's size.
        journal: resumed, and given each wave before the next is asked for; waves that it knows are not judged again.

    Raises:
        OutageError: nothing can be judged any more; only with a journal, which keeps what was judged.
    """
    size, losses = judge.max_together, Losses(journal.path) if journal else None
    for start in range(done, len(cases), size):
        if journal and (known := journal.known(start)):
            yield known
            continue
        wave = [judgment.without_clock() for judgment in await judge.verify_together(cases[start : start + size])]
        yield wave
        if losses and start + size < len(cases):
            losses.saw(lost=all(judgment.status in OUTAGES for judgment in wave), detail=wave[-1].detail)
