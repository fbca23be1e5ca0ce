"""The judgments of a run over a file of samples, on the disk: a first line that says what is judged by whom, then one a line.

A run that was killed goes on after the last complete wave. The file ends in a line that says how many there are; one without
it is not finished.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from configs.appended import AppendedFile, ResumeError
from eval.journal import to_line
from eval.rerank.samples import Columns
from verifier.types import OUTAGES, Judgment, Status

SYNC_EVERY_S = 1.0  # a machine that stops loses no more than this; a process that is killed loses the wave in work
_START = b'{"rerank":'
# A judgment as pydantic writes it, read without decoding its texts; a quote inside of those has a backslash before it.
_ENTRY = re.compile(
    rb'\{"id":"(\d+)(?:\.(\d+))?","status":"(%s)","verdict":(null|0|1),"p_correct":(null|[-+.e\d]+),'
    rb'.*"case_digest":"([0-9a-f]{64})".*\}\n' % "|".join(Status).encode()
)
_STATUSES = {status.encode(): status for status in Status}
_END = b'{"end":%d}\n'
_TAIL = 64
_WAYS_OUT = "Mend that, name another file with -o, or move this one away"


class Identity(BaseModel):
    """What judgments depend on: those of one identity may be continued, others may not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["medverify rerank 1"] = "medverify rerank 1"
    input_sha256: str
    columns: Columns
    judge_id: str
    seed: int
    wave: int

    def difference(self, now: "Identity") -> str | None:
        """What is not the same any more, and what would make it the same; None if nothing is."""
        if self.input_sha256 != now.input_sha256:
            return "the input has changed since; bring back the old one"
        if self.columns != now.columns:
            then, today = self.columns.model_dump(), now.columns.model_dump()
            changed = [
                f"--{name}-column was {then[name]} and is {today[name]}" for name in then if then[name] != today[name]
            ]
            return "; ".join(changed)
        if self.judge_id != now.judge_id:
            then_id, now_id = self.judge_id[:12], now.judge_id[:12]
            return f"it is by another judge ({then_id}…, now {now_id}…): model, prompt, index or limits differ"
        if self.seed != now.seed:
            return f"its seed is {self.seed}, not {now.seed}; use --set judge.sampling.seed={self.seed}"
        if self.wave != now.wave:
            return f"it was judged {self.wave} cases at a time, now it would be {now.wave}"
        return None


class _Header(BaseModel):
    rerank: Identity


class Entry(NamedTuple):
    """One judgment in the file, and where it stands."""

    row: int
    place: int  # among the row's samples; 0 if the row is one
    status: Status
    verdict: int | None
    p: float | None
    content: bytes  # digest of what was judged
    at: int
    text: bytes  # with the end of the line


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of a file when its run goes on."""

    count: int = 0  # judgments
    last: tuple[int, int] = (0, -1)  # row and place of the last one
    outages: int = 0  # among them, those that an outage or a deadline left unjudged
    finished: bool = False


class JudgmentsFile(AppendedFile):
    """The file that a run adds to. Open it with `with`; one run at a time."""

    _synced = 0.0

    def resume(self, now: Identity) -> Kept:
        """Make sure that the file is this run's, cut off what is not a complete wave, and tell what stays.

        Raises:
            ResumeError: the file holds something else, or is damaged; it stays as it is.
        """
        then = read_identity(self.path)
        if then is None:
            self.cut(0)
            self.add(_header(now))
            return Kept()
        if difference := then.difference(now):
            raise ResumeError(f"{self.path} cannot be continued: {difference}. {_WAYS_OUT}")
        count = outages = 0
        with self.path.open("rb") as file:
            waves, complete = Kept(), len(file.readline())
        last = waves.last
        for entry in entries(self.path):
            count, last = count + 1, (entry.row, entry.place)
            outages += entry.status in OUTAGES
            if count % now.wave == 0:
                waves, complete = Kept(count, last, outages), entry.at + len(entry.text)
        if is_finished(self.path):
            return Kept(count, last, outages, finished=True)
        self.cut(complete)
        return waves

    def append(self, wave: Sequence[Judgment]) -> None:
        """Add a wave. A process that is killed afterwards loses nothing of it; a machine that stops, the last second."""
        due = monotonic() - self._synced > SYNC_EVERY_S
        self.add(b"".join(map(to_line, wave)), sync=due)
        if due:
            self._synced = monotonic()

    def finish(self, count: int) -> None:
        """All is judged."""
        self.add(_END % count)


def _header(identity: Identity) -> bytes:
    return _Header(rerank=identity).model_dump_json().encode() + b"\n"


def read_identity(path: Path) -> Identity | None:
    """What the judgments of a file depend on; None if it is empty, or was cut short before its first line ended.

    Raises:
        ResumeError: the file holds something else.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        line = file.readline()
    if not line.endswith(b"\n") and line[: len(_START)] == _START[: len(line)]:
        return None
    try:
        return _Header.model_validate_json(line).rerank
    except ValidationError as error:
        raise ResumeError(f"{path} does not hold judgments of `medverify rerank`. {_WAYS_OUT}") from error


def is_finished(path: Path) -> bool:
    """Whether everything was judged."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return re.search(rb'\n\{"end":\d+\}\n\Z', file.read()) is not None


def entries(path: Path) -> Iterator[Entry]:
    """The judgments in a file, in order. A last line that was cut short is left out.

    Raises:
        ResumeError: a line is something else.
    """
    with path.open("rb") as file:
        at = len(file.readline())
        for number, line in enumerate(file, start=2):
            if match := _ENTRY.fullmatch(line):
                row, place, status, verdict, p, digest = match.groups()
                yield Entry(
                    row=int(row),
                    place=int(place or 0),
                    status=_STATUSES[status],
                    verdict=None if verdict == b"null" else int(verdict),
                    p=None if p == b"null" else float(p),
                    content=bytes.fromhex(digest.decode()),
                    at=at,
                    text=line,
                )
            elif line.endswith(b"\n") and not line.startswith(b'{"end":'):
                raise ResumeError(f"{path}: line {number} is damaged; cut the file off before it, or move it away")
            at += len(line)
