"""Passages on disk, addressed by row.

`passages.jsonl` holds one passage a line; `offsets.npy` holds int64 [rows + 1]: row r is bytes `offsets[r]` up to
`offsets[r + 1]`. A read is one `pread`: no shared file position, hence safe from any thread, and no memory but the page
cache. Opening costs the same for ten rows and for ten million: what only a full scan would show is left to the checksums,
and a row whose offsets cannot be is refused when it is read.
"""

import json
import operator
import os
from array import array
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from retrieval.passage import IndexCorruptError, Passage, RowError

PASSAGES_FILE = "passages.jsonl"
OFFSETS_FILE = "offsets.npy"

_BUFFER = 2**20  # bytes
_FIELDS = sorted(Passage.model_fields)
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# Left out of a line where they say nothing: most corpora declare none of them, in tens of millions of lines.
_OPTIONAL = frozenset({"license", "language", "year", "flags"})


def passage_line(passage: Passage) -> bytes:
    """The passage as one canonical JSON line: the same passage always gives the same bytes."""
    fields = {name: getattr(passage, name) for name in _FIELDS}
    said = {name: value for name, value in fields.items() if value or name not in _OPTIONAL}
    return (_to_json(said) + "\n").encode()


class TextStoreWriter:
    """Writes a text store front to back; rows are numbered from 0. The store is complete once the block is left.

    Offsets are written as they come, so that memory stays the same however many rows there are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = 0
        self._end = 0

    def __enter__(self) -> Self:
        self._texts = (self._folder / PASSAGES_FILE).open("xb", buffering=_BUFFER)
        self._offsets = (self._folder / OFFSETS_FILE).open("xb", buffering=_BUFFER)
        self._header = _write_header(self._offsets, 0)
        self._offsets.write(_packed(0))
        return self

    def append(self, passage: Passage) -> int:
        """Write a passage and return its row."""
        self._end += self._texts.write(passage_line(passage))
        self._offsets.write(_packed(self._end))
        self._rows += 1
        return self._rows - 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._texts.close()
        with self._offsets:
            if error is None:
                self._offsets.seek(0)
                if _write_header(self._offsets, self._rows + 1) != self._header:
                    raise AssertionError("the header of an .npy file has room for any number of rows")


class TextStore:
    """Reads passages by row. Close it to give back its file descriptor."""

    def __init__(self, folder: Path) -> None:
        """Open the store in `folder`.

        Raises:
            IndexCorruptError: a file is missing, or the two do not fit together.
        """
        self._path = folder / PASSAGES_FILE
        self.offsets = _load_offsets(folder / OFFSETS_FILE)
        self._positions = self.offsets.data  # gives plain integers, ten times as fast as the array does
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise IndexCorruptError(f"{self._path}: cannot be opened: {error}") from error
        self._open = True
        size = os.fstat(self._fd).st_size
        if size != self.offsets[-1]:
            self.close()
            raise IndexCorruptError(f"{self._path}: {size} bytes, but {OFFSETS_FILE} ends at {self.offsets[-1]}")

    def __len__(self) -> int:
        return len(self._positions) - 1

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
        start, stop = self._positions[position], self._positions[position + 1]
        if not 0 <= start < stop <= self._positions[-1]:
            raise IndexCorruptError(
                f"{self._path.with_name(OFFSETS_FILE)}, row {position}: bytes {start} to {stop}; rebuild the index"
            )
        line = os.pread(self._fd, stop - start, start)
        try:
            return Passage.model_validate_json(line)
        except ValidationError as error:
            raise IndexCorruptError(f"{self._path}, row {position}: not a passage; rebuild the index") from error

    def get_many(self, rows: Iterable[SupportsIndex]) -> list[Passage]:
        """Return the passages at `rows`, in their order; raises as `get` does."""
        return [self.get(row) for row in rows]

    def close(self) -> None:
        """Give back the file descriptor. May be called twice."""
        if self._open:
            self._open = False
            os.close(self._fd)


def _load_offsets(path: Path) -> NDArray[np.int64]:
    """Map the offsets (8 bytes a row) rather than read them."""
    try:
        offsets = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise IndexCorruptError(f"{path}: not a readable array: {error}") from error
    if offsets.dtype != np.int64 or offsets.ndim != 1 or len(offsets) == 0:
        raise IndexCorruptError(f"{path}: expected int64 [rows + 1], found {offsets.dtype} {list(offsets.shape)}")
    if offsets[0] != 0:
        raise IndexCorruptError(f"{path}: offsets must start at 0")
    return offsets


def _write_header(file: IO[bytes], count: int) -> int:
    """Write the header of an int64 [count] array and return where it ends; numpy pads it to the same size for any count."""
    header = {"descr": "<i8", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.tell()


def _packed(number: int) -> bytes:
    return array("q", (number,)).tobytes()
