"""Build an index from vectors that somebody else computed, such as NCBI's MedCPT vectors of PubMed.

There is little to resume: a build that is killed before its index is finished leaves the target as it was, and the next one
starts over, at the speed of the disk.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.build import SHARD_ROWS
from retrieval.clean import Cleaner
from retrieval.encoder_spec import EncoderSpec
from retrieval.manifest import CorpusSummary, Manifest, Parity, StoredType
from retrieval.passage import BuildError, Passage, VectorError
from retrieval.plan import manifest_of_texts, release, settled, with_shards
from retrieval.shards import Written, plan_ranges, write_shard
from retrieval.textstore import TextStoreWriter
from retrieval.workspace import Workspace

Block = tuple[Sequence[Passage], NDArray[Any]]


def build_from_vectors(
    blocks: Iterable[Block],
    spec: EncoderSpec,
    out_folder: Path,
    *,
    parity: Parity | None = None,
    cleaner: Cleaner | None = None,
    dtype: StoredType = "float32",
    shard_rows: int = SHARD_ROWS,
    overwrite: bool = False,
) -> Manifest:
    """Index passages whose vectors are given, and return the manifest.

    Args:
        blocks: passages with their vectors, float16 or float32 [n, dim], a block at a time; passages that the cleaner drops
            lose their vector as well.
        spec: the recipe that computed the vectors, pinned; it is believed here, and can be checked with `medverify index
            verify`.
        parity: what showed that the vectors are those of the recipe; goes into the manifest.

    The other arguments are those of `build.build_index`. Memory: a shard of vectors, a block, and what the cleaner remembers.

    Raises:
        BuildError: as `build.build_index`.
        VectorError: a block whose vectors do not fit its passages or the recipe; NaN or infinity.
    """
    if not (spec.query_model.digest and spec.passage_model.digest):
        raise BuildError(f"encoder {spec.name} is not pinned: its spec has no weight digests")
    workspace, cleaner = Workspace(out_folder), cleaner or Cleaner()
    how: dict[str, Any] = {
        "created_by": release(),
        "cleaning": cleaner.options.model_dump(mode="json"),
        "encoder": spec.recipe(),
        "given": True,
        "dtype": dtype,
        "shard_rows": shard_rows,
    }
    with workspace.locked():
        if left := settled(workspace, how, (passage for passages, _ in blocks for passage in passages)):
            return left
        workspace.check_target(overwrite)
        workspace.clear()
        try:
            manifest = _write(workspace.index, blocks, spec, cleaner, dtype=dtype, shard_rows=shard_rows)
            manifest = manifest.model_copy(update={"parity": parity})
            manifest.save(workspace.index)
        except BaseException:
            workspace.remove()
            raise
        workspace.publish(manifest, how)
    return manifest


def _write(
    folder: Path, blocks: Iterable[Block], spec: EncoderSpec, cleaner: Cleaner, *, dtype: StoredType, shard_rows: int
) -> Manifest:
    summary, shards = CorpusSummary(), _Shards(folder, spec.dim, dtype, shard_rows)
    pending = deque[tuple[tuple[str, str], NDArray[Any]]]()
    with TextStoreWriter(folder) as store:
        for passage in cleaner.kept(summary.watch(_unzipped(blocks, spec.dim, pending))):
            store.append(passage)
            shards.append(_vector_of(passage, pending))
    manifest = manifest_of_texts(
        folder, summary.corpus(), cleaner, spec=spec, arithmetic=None, dtype=dtype, shard_rows=shard_rows
    )
    return with_shards(manifest, shards.finished())


def _unzipped(
    blocks: Iterable[Block], dim: int, pending: deque[tuple[tuple[str, str], NDArray[Any]]]
) -> Iterator[Passage]:
    """The passages one by one; each has its vector put into `pending` first."""
    for passages, vectors in blocks:
        if vectors.shape != (len(passages), dim) or vectors.dtype not in (np.float32, np.float16):
            found = f"{vectors.dtype} {list(vectors.shape)}"
            raise VectorError(f"{len(passages)} passages: expected float vectors of {dim} dimensions, found {found}")
        for passage, vector in zip(passages, vectors, strict=True):
            pending.append(((passage.corpus, passage.id), vector))
            yield passage


def _vector_of(passage: Passage, pending: deque[tuple[tuple[str, str], NDArray[Any]]]) -> NDArray[Any]:
    """The vector of a passage that was kept. What waits before it belonged to passages that were dropped."""
    while pending:
        identity, vector = pending.popleft()
        if identity == (passage.corpus, passage.id):
            return vector
    raise BuildError(f"the cleaner gave back {passage.id!r} of {passage.corpus!r} out of order: it has no vector")


class _Shards:
    """Vectors row by row, written a shard at a time."""

    def __init__(self, folder: Path, dim: int, dtype: StoredType, shard_rows: int) -> None:
        self._folder, self._dtype = folder, dtype
        self._buffer = np.empty((shard_rows, dim), dtype=np.float32)
        self._rows = 0
        self._written: list[Written] = []

    def append(self, vector: NDArray[Any]) -> None:
        self._buffer[self._rows % len(self._buffer)] = vector
        self._rows += 1
        if self._rows % len(self._buffer) == 0:
            self._flush()

    def finished(self) -> list[Written]:
        """Write what is left; all shards, in order."""
        if self._rows % len(self._buffer):
            self._flush()
        return self._written

    def _flush(self) -> None:
        part = plan_ranges(self._rows, len(self._buffer))[-1]
        self._written.append(write_shard(self._folder, part, self._buffer[: part.stop - part.start], self._dtype))
