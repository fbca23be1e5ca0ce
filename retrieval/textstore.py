"""Passages on disk, addressed by row.

`passages.jsonl` holds one passage a line; `offsets.npy` holds int64 [rows + 1]: row r is bytes `offsets[r]` up to
`offsets[r + 1]`. A read is one `pread`: no shared file position, hence safe from any thread, and no memory but the page
cache.
"""

import json
import operator
import os
from pathlib import Path
from types import TracebackType
from typing import Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from retrieval.passage import IndexCorruptError, Passage, RowError

PASSAGES_FILE = "passages.jsonl"
OFFSETS_FILE = "offsets.npy"

# Left out of a line where they say nothing: most corpora declare none of them, in tens of millions of lines.
_OPTIONAL = frozenset({"license", "language", "year", "flags"})


def passage_line(passage: Passage) -> bytes:
    """The passage as one canonical JSON line: the same passage always gives the same bytes."""
    fields = passage.model_dump(include=set(Passage.model_fields))
    fields = {name: value for name, value in fields.items() if value or name not in _OPTIONAL}
    return (json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n").encode()


class TextStoreWriter:
    """Writes a text store front to back; rows are numbered from 0. The store is complete once the block is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets = [0]

    def __enter__(self) -> Self:
        self._file = (self._folder / PASSAGES_FILE).open("xb")
        return self

    def append(self, passage: Passage) -> int:
        """Write a passage and return its row."""
        written = self._file.write(passage_line(passage))
        self._offsets.append(self._offsets[-1] + written)
        return len(self._offsets) - 2

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if error is None:
            np.save(self._folder / OFFSETS_FILE, np.asarray(self._offsets, dtype=np.int64))


class TextStore:
    """Reads passages by row. Close it to give back its file descriptor."""

    def __init__(self, folder: Path) -> None:
        """Open the store in `folder`.

        Raises:
            IndexCorruptError: a file is missing, or the two do not fit together.
        """
        self._path = folder / PASSAGES_FILE
        self._offsets = _load_offsets(folder / OFFSETS_FILE)
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise IndexCorruptError(f"{self._path}: cannot be opened: {error}") from error
        self._open = True
        size = os.fstat(self._fd).st_size
        if size != self._offsets[-1]:
            self.close()
            raise IndexCorruptError(f"{self._path}: {size} bytes, but {OFFSETS_FILE} ends at {self._offsets[-1]}")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, row: SupportsIndex) -> Passage:
        """Return the passage at `row`.

        Raises:
            RowError: the row is negative or past the end; -1 is no row.
            IndexCorruptError: the bytes at that row are not a passage.
        """
        position = operator.index(row)
        if not 0 <= position < len(self):
            raise RowError(f"row {position} is not in {self._path}, which has rows 0 to {len(self) - 1}")
        if not self._open:
            raise RowError(f"row {position} of {self._path}: the store was closed")
        start, stop = int(self._offsets[position]), int(self._offsets[position + 1])
        line = os.pread(self._fd, stop - start, start)
        try:
            return Passage.model_validate_json(line)
        except ValidationError as error:
            raise IndexCorruptError(f"{self._path}, row {position}: not a passage; rebuild the index") from error

    def close(self) -> None:
        """Give back the file descriptor. May be called twice."""
        if self._open:
            self._open = False
            os.close(self._fd)


def _load_offsets(path: Path) -> NDArray[np.int64]:
    """Map the offsets (8 bytes a row) rather than read them, and check that they can be byte positions."""
    try:
        offsets = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise IndexCorruptError(f"{path}: not a readable array: {error}") from error
    if offsets.dtype != np.int64 or offsets.ndim != 1 or len(offsets) == 0:
        raise IndexCorruptError(f"{path}: expected int64 [rows + 1], found {offsets.dtype} {list(offsets.shape)}")
    if offsets[0] != 0 or (np.diff(offsets) <= 0).any():
        raise IndexCorruptError(f"{path}: offsets must start at 0 and rise")
    return offsets  # type: ignore[no-any-return]
