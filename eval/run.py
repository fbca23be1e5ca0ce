"""Judging many cases into a file: reproducible, resumable, nothing lost.

Cases are judged in waves of fixed composition, in the order of the input. Each wave is appended to the file as a whole and
flushed to the disk. A run that was killed goes on at the first wave that is not complete, and because a wave's numbers follow
from its content alone, the file comes out as if nothing had happened.
"""

import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from verifier.judge import Judge
from verifier.types import Case, Judgment, Status

_LINE_START = b'{"id":'
_OUTAGES = frozenset({Status.RETRIEVAL_FAILED, Status.ENGINE_FAILED, Status.TIMEOUT})


class OutputError(Exception):
    """The output file cannot be used, or not any more; the message says why and what to do."""


class ResumeError(OutputError):
    """The output file does not belong to this run; the message says why and what to do."""


async def judge_waves(judge: Judge, cases: Sequence[Case], done: int = 0) -> AsyncIterator[list[Judgment]]:
    """Judge `cases[done:]` wave by wave; `done` is a multiple of the wave's size."""
    size = judge.engine.max_sequences
    for start in range(done, len(cases), size):
        wave = await judge.verify_together(cases[start : start + size])
        yield [judgment.without_clock() for judgment in wave]


class Journal:
    """The output file of a run: JSON lines of judgments in the order of the cases. Open it with `with`; one run at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        """Make the file if need be, and keep other runs off it.

        Raises:
            OutputError: it is no regular file, such as a device or a pipe: those cannot be read again and continued.
            ResumeError: another run is writing to it.
            OSError: it cannot be written; better told now than after the first wave.
        """
        if self.path.exists() and not self.path.is_file():  # looked at first: to open a pipe waits for its reader
            raise OutputError(
                f"{self.path} is not a regular file, so no run can be continued in it. Name another with -o; "
                "`medverify verify --json` without -o writes to standard output"
            )
        self._file = self.path.open("ab", buffering=0)  # else what could not be written is tried once more on closing
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ResumeError(f"{self.path}: another run is writing to this file") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def resume(self, judge: Judge, cases: Sequence[Case], *, retry_failed: bool = False) -> list[Judgment]:
        """Read what is there, cut off what is not a complete wave, and return the judgments that stay.

        With `retry_failed` the run goes back to the first wave in which a case was not judged for reasons outside the
        judge: an outage, a deadline. What was there is kept beside the file, as `NAME.before-retry`, or with the next free
        number behind it.

        Raises:
            ResumeError: the file holds something other than the beginning of this run.
            OutputError: it cannot be read, cut or copied; it is as it was.
        """
        with self._told():
            return self._resume(judge, cases, retry_failed=retry_failed)

    def _resume(self, judge: Judge, cases: Sequence[Case], *, retry_failed: bool) -> list[Judgment]:
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
            if not _same(judgment.p_calibrated, judge.calibrated(judgment.p_correct)):
                raise self._mismatch(
                    f"line {number} was judged with another calibration, or with none, which judge.calibration decides"
                )
            if judgment.seed != judge.settings.sampling.seed:
                raise self._mismatch(f"line {number} has seed {judgment.seed}, not {judge.settings.sampling.seed}")
        cut_short = data[sum(len(line) + 1 for line in lines) :]
        if cut_short[: len(_LINE_START)] != _LINE_START[: len(cut_short)]:
            raise self._mismatch("it does not end in the beginning of a judgment")
        size = judge.engine.max_sequences
        kept = len(judgments) if len(judgments) == len(cases) else len(judgments) // size * size
        if (
            retry_failed
            and (first := next((i for i, j in enumerate(judgments) if j.status in _OUTAGES), None)) is not None
        ):
            kept = first // size * size
            # The judgments after it are made again, the same as before; until then they stay here.
            self._keep(data)
        self._file.truncate(sum(len(line) + 1 for line in lines[:kept]))
        os.fsync(self._file.fileno())
        return judgments[:kept]

    def append(self, wave: Sequence[Judgment]) -> None:
        """Add a wave; it is on the disk when this returns.

        Raises:
            OutputError: it cannot be written, as on a full disk. What was there before stays.
        """
        with self._told():
            _write(self._file, b"".join(to_line(judgment) for judgment in wave))

    def _keep(self, data: bytes) -> None:
        """Put a copy beside the file, under a name that is free."""
        for number in count(1):
            copy = self.path.with_name(f"{self.path.name}.before-retry{f'-{number}' if number > 1 else ''}")
            try:
                file = copy.open("xb", buffering=0)
            except FileExistsError:
                continue
            with file:
                try:
                    _write(file, data)
                except OSError:
                    copy.unlink()
                    raise
            return

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Faults of the disk as messages."""
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self.path}: {error.strerror or error}. Mend that (free space, if the disk is full) and run the same "
                "command again: the waves that are in the file are not lost"
            ) from error

    def _parse(self, number: int, line: bytes) -> Judgment:
        try:
            return Judgment.model_validate_json(line)
        except ValidationError as error:
            raise self._mismatch(f"line {number} is not a judgment ({error.error_count()} problems)") from error

    def _mismatch(self, reason: str) -> ResumeError:
        return ResumeError(
            f"{self.path} cannot be continued: {reason}. Name another file with -o, or move this one away."
        )


def _same(one: float | None, other: float | None) -> bool:
    """Whether two probabilities are the same but for the last bits of a logarithm."""
    return one == other if one is None or other is None else abs(one - other) < 1e-9


def _write(file: FileIO, data: bytes) -> None:
    """Append all of it to the disk, or, where the disk lets us, nothing."""
    before, rest = os.fstat(file.fileno()).st_size, memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):  # then resuming cuts it off
            file.truncate(before)
        raise


def to_line(judgment: Judgment) -> bytes:
    """A judgment as one line of JSON."""
    return judgment.model_dump_json().encode() + b"\n"
