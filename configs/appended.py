"""A file that one run at a time adds to, and that is cut back to what it is known to hold."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from configs.durable import append


class OutputError(Exception):
    """The output file cannot be used, or not any more; the message says why and what to do."""


class ResumeError(OutputError):
    """The output file does not belong to this run; the message says why and what to do."""


class AppendedFile:
    """Open it with `with`; what is added is on the disk when `add` or `sync` returns."""

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
                f"{self.path} is not a regular file, so no run can be continued in it. Name another with -o"
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

    def add(self, data: bytes, *, sync: bool = True) -> None:
        """Write at the end. Without `sync` a process that dies loses nothing, a machine that stops may.

        Raises:
            OutputError: it cannot be written, as on a full disk. What was there before stays.
        """
        with self.told():
            append(self._file, data, sync=sync)

    def sync(self) -> None:
        """Wait until everything has reached the disk; raises as `add`."""
        with self.told():
            os.fsync(self._file.fileno())

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes; raises as `add`."""
        with self.told():
            self._file.truncate(size)
            os.fsync(self._file.fileno())

    @contextmanager
    def told(self) -> Iterator[None]:
        """Faults of the disk as messages."""
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self.path}: {error.strerror or error}. Mend that (free space, if the disk is full) and run the same "
                "command again: what is in the file is not lost"
            ) from error
