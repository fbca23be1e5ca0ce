"""A file of JSON lines that a long run writes wave by wave, so that it can be killed at any moment and go on.

Each wave is appended as a whole and flushed to the disk. A run that was killed goes on at the first wave that is not complete;
because a wave's content follows from its input alone, the file comes out as if nothing had happened.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from configs.appended import AppendedFile, ResumeError
from configs.durable import write_whole

Line = TypeVar("Line", bound=BaseModel)


class Journal(AppendedFile, Generic[Line]):
    """The output file of a run: lines in the order of the input. Open it with `with`; one run at a time."""

    def __init__(self, path: Path, kind: type[Line], *, noun: str) -> None:
        """Name the file; nothing is opened yet.

        Args:
            path: the file.
            kind: what a line holds; its first field tells the beginning of a line that was cut short.
            noun: what messages call a line.
        """
        super().__init__(path)
        self._before = path.with_name(f"{path.name}.before-retry")
        self._known = dict[int, list[Line]]()
        self._missing = 0  # lines
        self._kind = kind
        self._noun = noun
        self._line_start = f'{{"{next(iter(kind.model_fields))}":'.encode()

    def go_on(
        self,
        total: int,
        wave: int,
        mismatch: Callable[[int, Line], str | None],
        retried: Callable[[Line], bool] = lambda _: False,
    ) -> list[Line]:
        """Read what is there, cut off what is not a complete wave, and return the lines that stay.

        Args:
            total: lines of the finished file.
            wave: lines that are made together.
            mismatch: why the line at an index is none of this run's, or None.
            retried: whether a line is to be made again. The run goes back to the wave of the first such line; until it is at
                its end, what was there is kept beside the file, as `NAME.before-retry`, and waves after it in which nothing is
                to be made again are taken from there, see `known`.

        Raises:
            ResumeError: the file holds something other than the beginning of this run.
            OutputError: it cannot be read, cut or copied; it is as it was.
        """
        data = self._read(self.path)
        raw, lines = self._lines(data, total, mismatch)
        cut_short = data[sum(len(line) + 1 for line in raw) :]
        if cut_short[: len(self._line_start)] != self._line_start[: len(cut_short)]:
            raise self._refused(f"it does not end in the beginning of a {self._noun}")
        kept = len(lines) if len(lines) == total else len(lines) // wave * wave
        raw_before, before = self._lines(self._read(self._before), total, mismatch)
        old, raw_old = [*lines, *before[len(lines) :]], [*raw, *raw_before[len(raw) :]]
        if (first := next((index for index, line in enumerate(lines) if retried(line)), None)) is not None:
            kept = first // wave * wave
            with self.told():
                write_whole(self._before, b"".join(line + b"\n" for line in raw_old).decode())
        self.cut(sum(len(line) + 1 for line in raw[:kept]))
        self._known = {}
        for start in range(kept, total, wave):
            made = old[start : min(start + wave, total)]
            if len(made) == min(wave, total - start) and not any(map(retried, made)):
                self._known[start] = made
        self._missing = total - kept
        self._tidy()
        return lines[:kept]

    def known(self, start: int) -> list[Line] | None:
        """The wave that begins at a line, if it was made before the run went back and need not be made again."""
        return self._known.get(start)

    @property
    def known_lines(self) -> int:
        """Lines of all such waves."""
        return sum(map(len, self._known.values()))

    def append(self, wave: Sequence[Line]) -> None:
        """Add a wave; it is on the disk when this returns."""
        self.add(b"".join(to_line(line) for line in wave))
        self._missing -= len(wave)
        self._tidy()

    def _tidy(self) -> None:
        """Once all is made again, what was there before is of no use."""
        if self._missing == 0:
            with self.told():
                self._before.unlink(missing_ok=True)

    def _read(self, path: Path) -> bytes:
        with self.told():
            return path.read_bytes() if path.exists() else b""

    def _lines(
        self, data: bytes, total: int, mismatch: Callable[[int, Line], str | None]
    ) -> tuple[list[bytes], list[Line]]:
        raw = data.split(b"\n")[:-1]  # the last piece is empty, or a line that was cut short
        lines = [self._parse(number, line) for number, line in enumerate(raw, start=1)]
        if len(lines) > total:
            raise self._refused(f"it holds {len(lines)} {self._noun}s for {total} cases")
        for index, line in enumerate(lines):
            if (reason := mismatch(index, line)) is not None:
                raise self._refused(f"line {index + 1} {reason}")
        return raw, lines

    def _parse(self, number: int, line: bytes) -> Line:
        try:
            return self._kind.model_validate_json(line)
        except ValidationError as error:
            raise self._refused(f"line {number} is not a {self._noun} ({error.error_count()} problems)") from error

    def _refused(self, reason: str) -> ResumeError:
        return ResumeError(
            f"{self.path} cannot be continued: {reason}. Name another file with -o, or move this one away."
        )


def to_line(line: BaseModel) -> bytes:
    """A line of a journal."""
    return line.model_dump_json().encode() + b"\n"
