"""The files of the audit log: JSON lines that are appended, begun anew by size and age, and deleted by age.

A line begins with its id, and ids only grow: a line is found by halves, in a few reads however large the log is, and no index can
disagree with it. Every process that writes has a folder of its own below the log's (`1`, `2`, …), held by a lock, and begins a
new file when it starts: what a killed process left is never touched, and a line that it tore is not read.
"""

import fcntl
import heapq
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from configs.durable import own_folder
from serve.judgment_ids import LENGTH

logger = logging.getLogger(__name__)

_BLOCK = 65_536
_START = re.compile(rb'\{"id":"([0-9A-Z]{%d})"' % LENGTH)


class Line(NamedTuple):
    """One line of the log, without its end."""

    id: str
    text: bytes


class AuditWriter:
    """Appends to one folder of the log. Not for several threads at once."""

    def __init__(self, log: Path, *, max_bytes: int, max_age_s: float) -> None:
        """Take the first folder that no other process writes to.

        Args:
            log: the folder of all writers; made if it is not there.
            max_bytes: size after which a new file is begun.
            max_age_s: age after which one is, in seconds.

        Raises:
            OSError: the folder cannot be made or written to.
        """
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._file: int | None = None
        self._size = 0
        self._begun = 0.0
        self._lock, self.folder = _own_folder(log)
        self.last_id = _last_id(self.folder)

    def append(self, lines: Sequence[Line]) -> None:
        """Add lines, whose ids follow all before. They are the system's when this returns: a killed process loses none.

        Raises:
            OSError: none of them was added.
        """
        data = b"".join(line.text + b"\n" for line in lines)
        if self._file is None or self._is_old() or (self._size and self._size + len(data) > self._max_bytes):
            self._file = self._begin(lines[0].id)
        try:
            _write_all(self._file, data)
        except OSError:
            # Part of it may be there; if that cannot be taken back, it is a torn line, behind which nothing is written.
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            self._finish()
            raise
        self._size += len(data)
        self.last_id = lines[-1].id

    def check(self) -> None:
        """Write a page beside the files and take it away again.

        Raises:
            OSError: that is not possible, so nothing else is.
        """
        probe = self.folder / "probe"
        file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(file, bytes(4096))
        finally:
            os.close(file)
            probe.unlink(missing_ok=True)

    def close(self) -> None:
        """Flush the file to the disk and let the folder go."""
        self._finish()
        os.close(self._lock)

    def finish_old(self) -> None:
        """Close the file if it is old enough, so that it can be deleted in its time even if nothing more is written."""
        if self._is_old():
            self._finish()

    def _is_old(self) -> bool:
        return self._file is not None and time.monotonic() - self._begun > self._max_age_s

    def _begin(self, first_id: str) -> int:
        self._finish()
        self._size, self._begun = 0, time.monotonic()
        return os.open(self.folder / f"{first_id}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def _finish(self) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)
        self._file = None


def delete_older(log: Path, oldest: float) -> int:
    """Delete files whose last line was written before `oldest` (seconds since 1970).

    Returns:
        how many.

    Raises:
        OSError: one cannot be deleted.
    """
    deleted = 0
    for path in log.glob("*/*.jsonl"):
        with suppress(FileNotFoundError):  # another process tidies as well
            if path.stat().st_mtime < oldest:
                path.unlink()
                deleted += 1
    return deleted


def find_line(log: Path, id: str) -> bytes | None:
    """The line with this id, or None."""
    for folder in _folders(log):
        candidates = [path for path in _files(folder) if path.stem <= id]
        if candidates:
            with _reading(candidates[-1]) as file:
                if file is not None and (line := next(_forwards(file, _lower_bound(file, id)), None)) and line.id == id:
                    return line.text
    return None


def newest_first(log: Path, before: str | None = None) -> Iterator[Line]:
    """Lines of all writers with ids below `before`, greatest first. Files that are deleted meanwhile are left out."""
    writers = (_newest_first(folder, before) for folder in _folders(log))
    return heapq.merge(*writers, key=lambda line: line.id, reverse=True)


def _newest_first(folder: Path, before: str | None) -> Iterator[Line]:
    for path in reversed(_files(folder)):
        if before is not None and path.stem >= before:
            continue
        with _reading(path) as file:
            if file is not None:
                end = _complete(file) if before is None else _lower_bound(file, before)
                yield from _backwards(file, end)


# ---- folders and files -----------------------------------------------------------------------------------------------


def _folders(log: Path) -> list[Path]:
    return sorted(path for path in log.glob("*") if path.is_dir()) if log.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))  # by their first id


def _own_folder(log: Path) -> tuple[int, Path]:
    for number in count(1):
        folder = log / str(number)
        own_folder(folder)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        except OSError:
            os.close(lock)
            raise
        else:
            return lock, folder
    raise AssertionError("there is always another number")


def _last_id(folder: Path) -> str | None:
    """The greatest id in a folder. A file may hold none, but its name is one that was given out."""
    for path in reversed(_files(folder)):
        with _reading(path) as file:
            if file is not None:
                last = next(_backwards(file, _complete(file)), None)
                return last.id if last else path.stem
    return None


@contextmanager
def _reading(path: Path) -> Iterator[int | None]:
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:  # deleted for its age
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


# ---- lines in a file -------------------------------------------------------------------------------------------------


def _lower_bound(file: int, id: str) -> int:
    """Where the first line begins whose id is not below this one; the end of the complete lines if there is none."""
    low, high = 0, _complete(file)
    while low < high:
        start = _line_start(file, (low + high) // 2)
        # Lines that cannot be read, after a fault of the disk, are passed over.
        line_at = next(((at, line) for at, line in _located(file, start, high) if line is not None), None)
        if line_at is not None and line_at[1].id < id:
            low = line_at[0] + len(line_at[1].text) + 1
        else:
            high = start
    return low


def _forwards(file: int, start: int) -> Iterator[Line]:
    return (line for _, line in _located(file, start, _complete(file)) if line is not None)


def _located(file: int, start: int, end: int) -> Iterator[tuple[int, Line | None]]:
    """Lines from the one that begins at `start`, with their places; None for what is no line of a log."""
    kept = b""
    at = start
    while at + len(kept) < end:
        kept += os.pread(file, min(_BLOCK, end - at - len(kept)), at + len(kept))
        *whole, kept = kept.split(b"\n")
        for text in whole:
            yield at, _line(text)
            at += len(text) + 1


def _backwards(file: int, end: int) -> Iterator[Line]:
    """Lines that end at `end` or before, last first."""
    kept = b""
    while end > 0:
        size = min(_BLOCK, end)
        end -= size
        first, *whole = (os.pread(file, size, end) + kept).split(b"\n")
        for text in reversed(whole):
            if (line := _line(text)) is not None:
                yield line
        kept = first
    if (line := _line(kept)) is not None:
        yield line


def _line(text: bytes) -> Line | None:
    begins = _START.match(text)
    return Line(begins[1].decode(), text) if begins and text.endswith(b"}") else None


def _line_start(file: int, offset: int) -> int:
    """Where the line begins that covers an offset."""
    return _after_newline(file, offset)


def _complete(file: int) -> int:
    """The size of all complete lines: what is behind the last end of a line was torn."""
    return _after_newline(file, os.fstat(file).st_size)


def _after_newline(file: int, end: int) -> int:
    """The place behind the last newline before `end`, or 0."""
    while end > 0:
        size = min(_BLOCK, end)
        found = os.pread(file, size, end - size).rfind(b"\n")
        if found >= 0:
            return end - size + found + 1
        end -= size
    return 0
