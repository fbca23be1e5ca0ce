"""What a job is on the disk: a folder with its cases, its results so far, and who asked for it.

    job.json        what was asked for; never changes
    cases.jsonl     a case a line
    results.jsonl   a judgment a line, in the order in which they were made, with the position of its case first
    cancelled       is there if the job was cancelled

A folder appears when it is whole. A result is on the disk when `append` returns; a line that was cut short by a kill is cut off.
One process at a time writes, and in it one thread.
"""

import os
import re
import shutil
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from configs.durable import append, for_owner, publish, sync, write_whole
from verifier.types import Case, Judgment, Status

_SPEC, _CASES, _RESULTS, _CANCELLED = "job.json", "cases.jsonl", "results.jsonl", "cancelled"
_LINE = re.compile(rb'\{"index":(\d+),"status":"([a-z_]+)",.*\}\n', re.S)
_PART, _GONE = ".part", ".gone"  # endings of folders that are not there yet, or any more
_CHUNK = 262_144
_STATUSES = frozenset(map(str, Status))


class JobSpec(BaseModel):
    """What was asked for."""

    model_config = ConfigDict(frozen=True)

    id: str
    caller: str
    judge_id: str
    seed: int
    total: int = Field(ge=1)
    created: float  # seconds since 1970


def result_line(index: int, judgment: Judgment) -> bytes:
    """A result as it is written: the judgment, with the position of its case before it."""
    return b'{"index":%d,"status":"%s",%s\n' % (
        index,
        judgment.status.encode(),
        judgment.model_dump_json(exclude={"status"}).encode()[1:],
    )


class JobFiles:
    """The folder of one job. Everything here waits for the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = JobSpec.model_validate_json((folder / _SPEC).read_bytes())
        self._results = folder / _RESULTS
        self.size = self._results.stat().st_size if self._results.exists() else 0  # of results known to be whole
        self._starts: array[int] | None = None
        self._cases_size = (folder / _CASES).stat().st_size

    @property
    def kept_bytes(self) -> int:
        """Size of cases and results."""
        return self._cases_size + self.size

    def load(self) -> dict[int, Status]:
        """The status of each case that has a result. What is no whole line of the results is cut off.

        Raises:
            OSError: they cannot be read or mended.
        """
        found = dict[int, Status]()
        good = 0  # bytes of whole lines before the first that is none
        behind = 0  # whole lines behind it
        whole = True
        for line in self._lines():
            parsed = self._parse(line)
            if parsed is None or parsed[0] in found:
                whole = False
                continue
            found[parsed[0]] = parsed[1]
            if whole:
                good += len(line)
            else:
                behind += 1
        if not whole:
            if behind == 0:  # cutting needs no room on a full disk
                os.truncate(self._results, good)
                self.size = good
            else:
                self._keep_lines(lambda index, _, seen: index not in seen)
        return found

    def case(self, index: int) -> Case:
        """The case at a position.

        Raises:
            OSError: it cannot be read.
            ValueError: it is no case.
        """
        starts = self._starts
        if starts is None:
            starts = self._starts = self._find_starts()
        with (self.folder / _CASES).open("rb") as file:
            return Case.model_validate_json(os.pread(file.fileno(), starts[index + 1] - starts[index], starts[index]))

    def append(self, line: bytes) -> None:
        """Add a result; it is on the disk when this returns.

        Raises:
            OSError: it is not there; it may be tried again.
        """
        with open(self._results, "ab", buffering=0, opener=for_owner) as file:
            if os.fstat(file.fileno()).st_size != self.size:  # what could not be taken back after an error
                file.truncate(self.size)
            append(file, line)
        self.size += len(line)

    def drop(self, statuses: Collection[Status]) -> dict[int, Status]:
        """Take out results with these statuses, all of them or none, and give the positions of their cases.

        Raises:
            OSError: nothing was changed.
        """
        dropped = dict[int, Status]()

        def stays(index: int, status: Status, _: Collection[int]) -> bool:
            if status in statuses:
                dropped[index] = status
            return status not in statuses

        self._keep_lines(stays)
        return dropped

    def results(self) -> Iterator[bytes]:
        """The results so far, in pieces. What is added or taken out meanwhile changes nothing of it."""
        left = self.size
        if left == 0:
            return
        with self._results.open("rb") as file:
            while left and (piece := file.read(min(left, _CHUNK))):
                left -= len(piece)
                yield piece

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return (self.folder / _CANCELLED).exists()

    def set_cancelled(self, cancelled: bool) -> None:
        """Write down that it was cancelled, or goes on.

        Raises:
            OSError: it cannot be written.
        """
        if cancelled:
            (self.folder / _CANCELLED).touch(mode=0o600)
        else:
            (self.folder / _CANCELLED).unlink(missing_ok=True)
        sync(self.folder)

    @property
    def changed(self) -> float:
        """When it was last changed, in seconds since 1970."""
        times = [self.folder / name for name in (_SPEC, _RESULTS, _CANCELLED)]
        return max(path.stat().st_mtime for path in times if path.exists())

    def remove(self) -> None:
        """Delete everything. From the moment this begins there is no such job, also if it does not end."""
        gone = self.folder.with_name(f".{self.folder.name}{_GONE}")
        self.folder.rename(gone)
        shutil.rmtree(gone)

    def _lines(self) -> Iterator[bytes]:
        if self._results.exists():
            with self._results.open("rb") as file:
                yield from file

    def _parse(self, line: bytes) -> tuple[int, Status] | None:
        match = _LINE.fullmatch(line)
        if match is None or int(match[1]) >= self.spec.total or match[2].decode() not in _STATUSES:
            return None
        return int(match[1]), Status(match[2].decode())

    def _keep_lines(self, stays: Callable[[int, Status, Collection[int]], bool]) -> None:
        """Put a copy in place that has the whole lines for which `stays` holds; it is told which cases have one already."""
        temporary = self.folder / f".{_RESULTS}{_PART}"
        seen, size = set[int](), 0
        with open(temporary, "wb", opener=for_owner) as file:
            for line in self._lines():
                if (parsed := self._parse(line)) is not None and stays(*parsed, seen):
                    file.write(line)
                    seen.add(parsed[0])
                    size += len(line)
        publish(temporary, self._results)
        self.size = size

    def _find_starts(self) -> "array[int]":
        starts = array("Q", [0])
        with (self.folder / _CASES).open("rb") as file:
            for line in file:
                starts.append(starts[-1] + len(line))
        return starts


class Draft:
    """A job that is being handed in. Its folder is not seen before it is whole."""

    def __init__(self, jobs: Path, id: str) -> None:
        """Make the folder.

        Raises:
            OSError: it cannot be made.
        """
        self.id = id
        self._jobs = jobs
        self._folder = jobs / f".{id}{_PART}"
        self._folder.mkdir(mode=0o700)
        self.upload = self._folder / "upload.jsonl"
        self.received = 0  # bytes

    def receive(self, piece: bytes) -> None:
        """Add to the upload, which `write_cases` has to be given the cases of; raises OSError."""
        with open(self.upload, "ab", opener=for_owner) as file:
            file.write(piece)
        self.received += len(piece)

    def write_cases(self, cases: Iterable[Case]) -> int:
        """Write the cases and give their number; raises OSError."""
        total = 0
        with open(self._folder / _CASES, "wb", opener=for_owner) as file:
            for case in cases:
                file.write(case.model_dump_json(exclude_none=True).encode() + b"\n")
                total += 1
        return total

    def publish(self, spec: JobSpec) -> JobFiles:
        """Make it a job; raises OSError."""
        self.upload.unlink(missing_ok=True)
        sync(self._folder / _CASES)
        write_whole(self._folder / _SPEC, spec.model_dump_json(), private=True)
        folder = self._jobs / self.id
        publish(self._folder, folder)
        return JobFiles(folder)

    def discard(self) -> None:
        """Leave nothing of it, if it is not a job by now."""
        shutil.rmtree(self._folder, ignore_errors=True)


def sweep(jobs: Path) -> None:
    """Delete what a killed process left of jobs that were being made or deleted."""
    for ending in (_PART, _GONE):
        for folder in jobs.glob(f".*{ending}"):
            shutil.rmtree(folder, ignore_errors=True)
