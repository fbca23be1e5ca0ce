"""Does an index hold what its manifest and its other descriptions say, and do its vectors belong to its texts?"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from retrieval import bm25, compressed
from retrieval.encoder import Encoder
from retrieval.exact_scores import longest_row
from retrieval.manifest import Manifest, RowRange
from retrieval.passage import IndexCorruptError, IndexMismatchError
from retrieval.shards import open_rows, open_shards
from retrieval.textstore import TextStore

# How far a vector may be from one that is computed again, as a part of its length. Another passage's is off by about 1.
_SLACK_COMPUTED = {"float32": 1e-3, "bfloat16": 5e-2, None: 2e-2}
_SLACK_STORED = {"float32": 0.0, "float16": 1e-3}


@dataclass(frozen=True)
class Sample:
    """Rows that were encoded again."""

    rows: int
    largest: float  # relative difference
    allowed: float
    wrong: tuple[int, ...]  # rows beyond what is allowed


def damaged_files(folder: Path, manifest: Manifest, on_progress: Callable[[int, int], None]) -> list[str]:
    """What is wrong with each file that does not match its checksum, or holds a longer vector than the manifest says.

    Looks at the index, its compressed copies and its word index. Reads every byte; reports bytes done and in all. A search
    believes the longest vector's length when it decides which rows it need not look at.
    """
    complaints, done, checks = list[str](), 0, _checks(folder, manifest)
    total = sum(size for size, _ in checks)
    for size, check in checks:
        try:
            check()
        except (IndexCorruptError, IndexMismatchError) as error:
            complaints.append(str(error))
        done += size
        on_progress(done, total)
    return complaints


def _checks(folder: Path, manifest: Manifest) -> list[tuple[int, Callable[[], object]]]:
    """Each check, and the bytes that it reads."""
    checks: list[tuple[int, Callable[[], object]]] = [
        (entry.size, partial(_check_file, folder, manifest, name)) for name, entry in manifest.files.items()
    ]
    checked = compressed.checked_recipe
    for path in sorted((folder / compressed.FOLDER).glob("*.json")):
        size = sum(each.stat().st_size for each in path.parent.glob(f"{path.stem}.faiss"))
        checks.append((size, partial(checked, folder, path.stem, manifest.digest, manifest.rows, verify=True)))
    if (words := folder / bm25.FOLDER).is_dir():
        size = sum(each.stat().st_size for each in words.iterdir())
        checks.append((size, partial(bm25.checked_description, folder, manifest, verify=True)))
    return checks


def _check_file(folder: Path, manifest: Manifest, name: str) -> None:
    manifest.check_file(folder, name)
    for part in manifest.ranges:
        if part.file == name:
            _check_longest(folder, manifest, part)


def _check_longest(folder: Path, manifest: Manifest, part: RowRange) -> None:
    [vectors] = open_rows(folder, manifest, part.start, part.stop)
    longest = longest_row(vectors)
    if part.longest is not None and not math.isclose(longest, part.longest, rel_tol=1e-9):
        raise IndexCorruptError(
            f"{folder / part.file}: its longest vector has length {longest!r}, the manifest says {part.longest!r}; "
            "rebuild the index"
        )


def encode_again(folder: Path, manifest: Manifest, encoder: Encoder, count: int, seed: int) -> Sample:
    """Encode up to `count` rows, drawn by `seed`, and compare them with the stored vectors.

    What is allowed is what the coarser explains: the arithmetic that the index was built with, or the encoder's here.

    Raises:
        IndexMismatchError: the encoder is not the one that built the index.
        IndexCorruptError: files that cannot be read.
    """
    manifest.check_encoder(encoder.spec)
    drawn = np.random.default_rng(seed).choice(manifest.rows, size=min(count, manifest.rows), replace=False)
    rows = sorted(int(row) for row in drawn)
    with TextStore(folder) as texts:
        if len(texts) != manifest.rows:
            raise IndexCorruptError(f"{folder}: {len(texts)} passages and {manifest.rows} rows; rebuild the index")
        computed = encoder.encode_passages(texts.get_many(rows)).astype(np.float64)
    starts = [part.start for part in manifest.ranges]
    shards = open_shards(folder, manifest)
    stored = np.empty_like(computed)
    for number, row in enumerate(rows):
        shard = int(np.searchsorted(starts, row, side="right")) - 1
        stored[number] = shards[shard][row - starts[shard]]
    lengths = np.linalg.norm(computed, axis=1)
    differences = np.linalg.norm(stored - computed, axis=1) / np.maximum(lengths, np.finfo(np.float32).tiny)
    built = manifest.arithmetic.precision if manifest.arithmetic else None
    slack = max(_SLACK_COMPUTED[built], _SLACK_COMPUTED[encoder.arithmetic.precision])
    allowed = slack + _SLACK_STORED[manifest.dtype]
    wrong = tuple(row for row, difference in zip(rows, differences, strict=True) if not difference <= allowed)
    return Sample(len(rows), float(differences.max(initial=0)), allowed, wrong)
