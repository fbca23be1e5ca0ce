"""Judging many cases into a file: reproducible, resumable, nothing lost.

Cases are judged in waves of fixed composition, in the order of the input. Each wave is appended to the file as a whole and
flushed to the disk. A run that was killed goes on at the first wave that is not complete, and because a wave's numbers follow
from its content alone, the file comes out as if nothing had happened.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from pydantic import ValidationError

from eval.appended import AppendedFile, ResumeError
from verifier.types import Case, Judgment, Status

__all__ = ["OUTAGES", "Journal", "Judging", "ResumeError", "judge_waves", "to_line"]

_LINE_START = b'{"id":'
OUTAGES = frozenset({Status.RETRIEVAL_FAILED, Status.ENGINE_FAILED, Status.TIMEOUT})


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


async def judge_waves(judge: Judging, cases: Sequence[Case], done: int = 0) -> AsyncIterator[list[Judgment]]:
    """Judge `cases[done:]` wave by wave; `done` is a multiple of the wave's size."""
    size = judge.max_together
    for start in range(done, len(cases), size):
        wave = await judge.verify_together(cases[start : start + size])
        yield [judgment.without_clock() for judgment in wave]


class Journal(AppendedFile):
    """The output file of a run: JSON lines of judgments in the order of the cases. Open it with `with`; one run at a time."""

    kind: type[Judgment] = Judgment  # what its lines are read as

    def resume(self, judge: Judging, cases: Sequence[Case], *, retry_failed: bool = False) -> list[Judgment]:
        """Read what is there, cut off what is not a complete wave, and return the judgments that stay.

        With `retry_failed` the run goes back to the first wave in which a case was not judged for reasons outside the
        judge: an outage, a deadline. What was there is kept beside the file, as `NAME.before-retry`.

        Raises:
            ResumeError: the file holds something other than the beginning of this run.
        """
        data = self.path.read_bytes()
        lines = data.split(b"\n")[:-1]  # the last piece is empty, or a line that was cut short
        judgments = [self._parse(number, line) for number, line in enumerate(lines, start=1)]
        if len(judgments) > len(cases):
            raise self._mismatch(f"it holds {len(judgments)} judgments for {len(cases)} cases")
        for number, (judgment, case) in enumerate(zip(judgments, cases, strict=False), start=1):
            if judgment.judge_id != judge.judge_id:
                raise self._mismatch(
                    f"line {number} is by another judge ({judgment.judge_id[:12]}…, now {judge.judge_id[:12]}…)"
                )
            if judgment.id != case.id or judgment.case_digest != case.digest:
                raise self._mismatch(f"line {number} judges {judgment.id!r}, not the input's {case.id!r} as it is now")
            if not judge.calibrates(judgment):
                raise self._mismatch(
                    f"line {number} was judged with another calibration, or with none, which judge.calibration decides"
                )
            if judgment.seed != judge.seed:
                raise self._mismatch(f"line {number} has seed {judgment.seed}, not {judge.seed}")
        cut_short = data[sum(len(line) + 1 for line in lines) :]
        if cut_short[: len(_LINE_START)] != _LINE_START[: len(cut_short)]:
            raise self._mismatch("it does not end in the beginning of a judgment")
        size = judge.max_together
        kept = len(judgments) if len(judgments) == len(cases) else len(judgments) // size * size
        if (
            retry_failed
            and (first := next((i for i, j in enumerate(judgments) if j.status in OUTAGES), None)) is not None
        ):
            kept = first // size * size
            # The judgments after it are made again, the same as before; until then they stay here.
            self.path.with_name(f"{self.path.name}.before-retry").write_bytes(data)
        self.cut(sum(len(line) + 1 for line in lines[:kept]))
        return judgments[:kept]

    def append(self, wave: Sequence[Judgment]) -> None:
        """Add a wave; it is on the disk when this returns."""
        self.add(b"".join(to_line(judgment) for judgment in wave))

    def _parse(self, number: int, line: bytes) -> Judgment:
        try:
            return self.kind.model_validate_json(line)
        except ValidationError as error:
            raise self._mismatch(f"line {number} is not a judgment ({error.error_count()} problems)") from error

    def _mismatch(self, reason: str) -> ResumeError:
        return ResumeError(
            f"{self.path} cannot be continued: {reason}. Name another file with -o, or move this one away."
        )


def to_line(judgment: Judgment) -> bytes:
    """A judgment as one line of JSON."""
    return judgment.model_dump_json().encode() + b"\n"
