"""Judging many cases into a file: reproducible, resumable, nothing lost.

Cases are judged in waves of fixed composition, in the order of the input; `eval.journal` keeps what is done.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from eval import journal
from eval.journal import ResumeError, to_line
from verifier.judge import Judge
from verifier.types import Case, Judgment, Status

__all__ = ["Journal", "ResumeError", "judge_waves", "to_line"]

_OUTAGES = frozenset({Status.RETRIEVAL_FAILED, Status.ENGINE_FAILED, Status.TIMEOUT})


async def judge_waves(judge: Judge, cases: Sequence[Case], done: int = 0) -> AsyncIterator[list[Judgment]]:
    """Judge `cases[done:]` wave by wave; `done` is a multiple of the wave's size."""
    size = judge.engine.max_sequences
    for start in range(done, len(cases), size):
        wave = await judge.verify_together(cases[start : start + size])
        yield [judgment.without_clock() for judgment in wave]


class Journal(journal.Journal[Judgment]):
    """The output file of a run: JSON lines of judgments in the order of the cases."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Judgment, noun="judgment")

    def resume(self, judge: Judge, cases: Sequence[Case], *, retry_failed: bool = False) -> list[Judgment]:
        """Read what is there, cut off what is not a complete wave, and return the judgments that stay.

        With `retry_failed` the run goes back to the first wave in which a case was not judged for reasons outside the
        judge: an outage, a deadline. What was there is kept beside the file, as `NAME.before-retry`.

        Raises:
            ResumeError: the file holds something other than the beginning of this run.
        """

        def mismatch(index: int, judgment: Judgment) -> str | None:
            case, seed = cases[index], judge.settings.sampling.seed
            if judgment.judge_id != judge.judge_id:
                return f"is by another judge ({judgment.judge_id[:12]}…, now {judge.judge_id[:12]}…)"
            if judgment.id != case.id or judgment.case_digest != case.digest:
                return f"judges {judgment.id!r}, not the input's {case.id!r} as it is now"
            return None if judgment.seed == seed else f"has seed {judgment.seed}, not {seed}"

        return self.go_on(
            len(cases),
            judge.engine.max_sequences,
            mismatch,
            lambda judgment: retry_failed and judgment.status in _OUTAGES,
        )
