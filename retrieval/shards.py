"""Vectors on disk: plain .npy files of consecutive rows, float32 or float16, [n, dim], that are mapped into memory.

A shard is written under another name, flushed and renamed, and only then is its done marker: a marker stands for a whole
file, and holds its checksum and the length of its longest vector.
"""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from configs.durable import publish
from retrieval.exact_scores import Stored, longest_row
from retrieval.manifest import FileEntry, Manifest, RowRange, StoredType, file_entry
from retrieval.passage import IndexCorruptError, VectorError

VECTORS_FOLDER = "vectors"

_BLOCK = 4096  # rows looked at together, so that checks need little memory


class Written(BaseModel):
    """A finished shard: its rows, with the length of the longest, and its file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    part: RowRange
    entry: FileEntry


def plan_ranges(rows: int, shard_rows: int) -> tuple[RowRange, ...]:
    """Cut `rows` into files of `shard_rows`; the last one may be shorter."""
    return tuple(
        RowRange(file=f"{VECTORS_FOLDER}/{number:05}.npy", start=start, stop=min(start + shard_rows, rows))
        for number, start in enumerate(range(0, rows, shard_rows))
    )


def write_shard(folder: Path, part: RowRange, vectors: NDArray[np.float32], dtype: StoredType) -> Written:
    """Write the vectors of one range, float32 [stop - start, dim], as `dtype`.

    Raises:
        VectorError: NaN or infinity among them, or a number that float16 cannot hold; names the row.
    """
    path, longest = folder / part.file, 0.0
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        header = {"descr": np.dtype(dtype).newbyteorder("<").str, "fortran_order": False, "shape": vectors.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(vectors), _BLOCK):
            block = _narrowed(vectors[start : start + _BLOCK], part.start + start, dtype)
            longest = max(longest, longest_row(block))
            file.write(block.data)
    entry = file_entry(temporary)
    publish(temporary, path)
    return Written(part=part.model_copy(update={"longest": longest}), entry=entry)


def _narrowed(block: NDArray[np.float32], first_row: int, dtype: StoredType) -> Stored:
    with np.errstate(over="ignore"):
        narrow: Stored = np.ascontiguousarray(block, dtype=dtype)
    finite = np.isfinite(narrow).all(axis=1)
    if not finite.all():
        worst = int(np.argmin(finite))
        what = "a number too large for float16" if np.isfinite(block[worst]).all() else "NaN or infinity"
        raise VectorError(f"the vector of row {first_row + worst} has {what}")
    return narrow


def mark_done(folder: Path, shard: Written) -> None:
    """Write the done marker of a finished shard into `folder`."""
    marker = _marker(folder, shard.part)
    draft = marker.with_name(f".{marker.name}.{os.getpid()}")
    draft.write_text(shard.model_dump_json(), encoding="ascii")
    publish(draft, marker)


def done_shard(folder: Path, part: RowRange) -> Written | None:
    """What the done marker of a range says about its shard; None: it has still to be written.

    Args:
        part: as planned, without a length of the longest vector. A marker of other rows stands for another plan's shard.
    """
    try:
        shard = Written.model_validate_json(_marker(folder, part).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return shard if shard.part.model_copy(update={"longest": None}) == part else None


def _marker(folder: Path, part: RowRange) -> Path:
    return folder / f"{Path(part.file).stem}.json"


def open_shards(folder: Path, manifest: Manifest) -> list[Stored]:
    """Map the vectors of an index, in row order: arrays [n, dim] of the manifest's dtype, read-only, in C order.

    Raises:
        IndexCorruptError: a file is missing or is not what the manifest says; names it.
    """
    return [_open(folder / part.file, part, manifest) for part in manifest.ranges]


def open_rows(folder: Path, manifest: Manifest, start: int, stop: int, *, verify: bool = False) -> list[Stored]:
    """Map rows `start` up to and without `stop`, in row order; files that hold none of them need not be there.

    The sizes of the files are checked, and their SHA-256 if `verify`.

    Raises:
        IndexCorruptError: a file is missing or is not what the manifest says; names it.
    """
    opened = []
    for part in manifest.overlapping(start, stop):
        manifest.check_file(folder, part.file, hashed=verify)
        vectors = _open(folder / part.file, part, manifest)
        opened.append(vectors[max(start - part.start, 0) : stop - part.start])
    return opened


def _open(path: Path, part: RowRange, manifest: Manifest) -> Stored:
    try:
        shard = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise IndexCorruptError(f"{path}: not a readable array: {error}; rebuild the index") from error
    expected = (part.stop - part.start, manifest.encoder.dim)
    if shard.shape != expected or shard.dtype != np.dtype(manifest.dtype) or not shard.flags.c_contiguous:
        raise IndexCorruptError(
            f"{path}: expected {manifest.dtype} {list(expected)} in C order, found {shard.dtype} {list(shard.shape)}"
        )
    return shard
