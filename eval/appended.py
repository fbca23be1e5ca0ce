"""A file that one run at a time adds to, and that is cut back to what it is known to hold."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self


class ResumeError(Exception):
    """The output file does not belong to this run; the message says why and what to do."""


class AppendedFile:
    """Open it with `with`; what is added is on the disk when `add` or `sync` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        """Make the file if need be, and keep other runs off it.

        Raises:
            ResumeError: another run is writing to it.
            OSError: it cannot be written; better told now than after the first wave.
        """
        self._file = self.path.open("ab")
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

    def add(self, data: bytes, *, sync: bool = True) -> None:
        """Write at the end. Without `sync` a process that dies loses nothing, a machine that stops may."""
        self._file.write(data)
        self._file.flush()
        if sync:
            self.sync()

    def sync(self) -> None:
        """Wait until everything has reached the disk."""
        os.fsync(self._file.fileno())

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes."""
        self._file.truncate(size)
        self.sync()
