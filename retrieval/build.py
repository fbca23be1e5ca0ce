"""Build an index folder: all of it or nothing, however often the build is interrupted.

First the texts are cleaned and written, and a plan with them: what is built, from which passages, by which encoder. Then
the vectors are computed, shard after shard, by one process or by several, each with a rank; a finished shard has a done
marker. Who finds all markers there writes the manifest and puts the index in place (`workspace.py`). A build that is killed
goes on from the last marker when the same command is given again.

Nothing that is written depends on the time, the place or chance, nor on where a build was interrupted: the batches of a
shard are always the same. So two builds from the same passages and encoder, on the same kind of machine, give the same bytes.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.durable import sync, write_whole
from retrieval.clean import Cleaner
from retrieval.encoder import Encoder, Vectors
from retrieval.manifest import CorpusSummary, Manifest, RowRange, StoredType, differences
from retrieval.passage import BuildError, Passage, ShardsMissingError, UnfinishedError
from retrieval.plan import Plan, manifest_of_texts, release, settled, unfinished, with_shards
from retrieval.progress import Meter, Progress
from retrieval.shards import done_shard, mark_done, write_shard
from retrieval.textstore import TextStore, TextStoreWriter
from retrieval.workspace import Workspace

SHARD_ROWS = 20_000  # what a killed process has to do again at most; 60 MB in float32 at 768 dimensions
_BLOCK = 512  # passages handed to the encoder together, and between two reports of progress
_PATIENCE_S = 600  # for rank 0 to start, after another rank did


def build_index(
    passages: Iterable[Passage],
    encoder: Encoder,
    out_folder: Path,
    *,
    cleaner: Cleaner | None = None,
    dtype: StoredType = "float32",
    shard_rows: int = SHARD_ROWS,
    overwrite: bool = False,
    fresh: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Manifest:
    """Clean, encode and index `passages`, in their order, and return the manifest.

    If the same build was interrupted, it goes on; `passages` are then read once more, to see that they are the same.

    Args:
        cleaner: a fresh one; decides what is left out, and the manifest holds its options and counts.
        dtype: how vectors are stored.
        shard_rows: rows of a vector file; of an interrupted build, at most one file has to be computed again.
        overwrite: replace an index that is at the target.
        fresh: start anew whatever an interrupted build left.
        on_progress: called as passages are encoded.

    Memory: a shard of vectors, and what the cleaner remembers.

    Raises:
        BusyError: another process is building this index.
        UnfinishedError: an unfinished build of something else is in the way.
        BuildError: the target exists and `overwrite` is false, or is not an index; two passages of one corpus share an id;
            nothing is left to index; the encoder has no digest.
        VectorError: the encoder gave NaN or infinity, or numbers that are too large for float16.
        RetrievalError: whatever the passages' source or the encoder raises; the target is then as it was.
    """
    build = _Build(Workspace(out_folder), encoder, cleaner or Cleaner(), dtype, shard_rows)
    with ExitStack() as held:
        with build.workspace.locked():
            if not (fresh and overwrite) and (manifest := settled(build.workspace, build.how(), passages)):
                return manifest
            plan = build.set_up(passages, held, overwrite=overwrite, fresh=fresh)
        build.encode(plan, plan.manifest.ranges, on_progress)
        return finish_index(out_folder, overwrite=overwrite)


def build_rank(
    passages: Iterable[Passage],
    encoder: Encoder,
    out_folder: Path,
    rank: int,
    world: int,
    *,
    cleaner: Cleaner | None = None,
    dtype: StoredType = "float32",
    shard_rows: int = SHARD_ROWS,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Manifest | None:
    """Do the part of one of `world` processes that build an index together; all are given the same arguments.

    Rank 0 reads `passages` and writes the texts, or sees that those of an interrupted build are the same; each time that it
    does, every other rank may begin once, and whenever rank 0 is still at work. Each then encodes every `world`-th shard. Who
    is done last puts the index in place and gets its manifest, the others get None. Otherwise as `build_index`.
    """
    if not 0 <= rank < world:
        raise BuildError(f"rank {rank} of {world}: expected a rank from 0 to {world - 1}")
    workspace = Workspace(out_folder)
    build = _Build(workspace, encoder, cleaner or Cleaner(), dtype, shard_rows)
    with ExitStack() as held:
        if rank == 0:
            with workspace.locked(wait=True):
                if manifest := settled(build.workspace, build.how(), passages):
                    return manifest
                plan = build.set_up(passages, held, overwrite=overwrite, fresh=False)
                workspace.admit(range(1, world))
        else:
            plan = build.await_plan(rank, held, overwrite=overwrite)
        build.encode(plan, plan.manifest.ranges[rank::world], on_progress)
        with workspace.locked(wait=True):
            if not workspace.index.exists():
                workspace.forget()
                return Manifest.load(workspace.target)  # another rank was done a moment later, and first here
            return None if _missing(workspace, plan) else _put_in_place(workspace, plan)


def finish_index(out_folder: Path, *, overwrite: bool = False) -> Manifest:
    """Put an index in place whose shards are all done, and return its manifest.

    Raises:
        ShardsMissingError: names those that are not.
        BuildError: there is no unfinished build of this target, or the target must not be replaced.
    """
    workspace = Workspace(out_folder)
    with workspace.locked(wait=True):
        if left := workspace.settled():
            workspace.forget()
            return left[0]
        plan = unfinished(workspace)
        if plan is None:
            raise BuildError(f"{workspace.target}: there is no unfinished build of this index")
        workspace.check_target(overwrite)
        if missing := _missing(workspace, plan):
            listed = ", ".join(part.file for part in missing[:8]) + (", …" if len(missing) > 8 else "")
            raise ShardsMissingError(
                f"{workspace.target}: {len(missing)} of {len(plan.manifest.ranges)} shards have still to be encoded "
                f"({listed}); run the ranks that were to encode them again"
            )
        return _put_in_place(workspace, plan)


@dataclass(frozen=True)
class _Build:
    """What is built, how and where."""

    workspace: Workspace
    encoder: Encoder
    cleaner: Cleaner
    dtype: StoredType
    shard_rows: int

    def set_up(self, passages: Iterable[Passage], held: ExitStack, *, overwrite: bool, fresh: bool) -> Plan:
        """Take rank 0, and write texts and plan, or find them written. The workspace is locked."""
        if not (self.encoder.spec.query_model.digest and self.encoder.spec.passage_model.digest):
            raise BuildError(f"encoder {self.encoder.spec.name} is not pinned: its spec has no weight digests")
        self.workspace.check_target(overwrite)
        plan = None if fresh else unfinished(self.workspace)
        if plan is None:
            self.workspace.clear()
        held.enter_context(self.workspace.rank(0))
        self.workspace.revoke()
        if plan is None:
            try:
                return self._write_plan(passages)
            except BaseException:
                self.workspace.remove()
                raise
        self._refuse(differences("build", plan.how, self.how(), "it has"))
        corpus = CorpusSummary.of(passages).model_dump()
        self._refuse(differences("corpus", plan.manifest.corpus.model_dump(), corpus, "it has"))
        return plan

    def await_plan(self, rank: int, held: ExitStack, *, overwrite: bool) -> Plan:
        """Take `rank` when rank 0 has written the texts, or has seen that they are still those of its passages."""
        started = time.monotonic()
        while True:
            with self.workspace.locked(wait=True):  # which rank 0 holds as long as it writes
                self.workspace.check_target(overwrite)
                if plan := unfinished(self.workspace):
                    self._refuse(differences("build", plan.how, self.how(), "it has"))
                    if self.workspace.admitted(rank):
                        held.enter_context(self.workspace.rank(rank))
                        return plan
            if time.monotonic() - started > _PATIENCE_S:
                raise BuildError(
                    f"{self.workspace.target}: rank 0 has not written the texts, or not seen that they are still those of "
                    "its passages; start it as well"
                )
            time.sleep(0.5)

    def encode(
        self, plan: Plan, parts: Sequence[RowRange], on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        """Encode those of `parts` that have not been."""
        with TextStore(self.workspace.index) as texts:
            waiting = [part for part in parts if done_shard(self.workspace.done, part) is None]
            meter = Meter(texts.offsets, self.encoder.spec.passage_max_tokens, parts, waiting)
            for part in waiting:
                vectors = np.empty((part.stop - part.start, self.encoder.spec.dim), dtype=np.float32)
                for rows, block in self._encoded_blocks(texts, part):
                    vectors[rows] = block
                    meter.add(part.start + rows)
                    if on_progress:
                        on_progress(meter.progress())
                mark_done(self.workspace.done, write_shard(self.workspace.index, part, vectors, self.dtype))

    def _encoded_blocks(self, texts: TextStore, part: RowRange) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Blocks of rows of a shard, counted from its start, with their vectors."""
        blocks = blocks_of_like_length(texts.offsets, part)
        passages = (texts.get_many(part.start + rows) for rows in blocks)
        with closing(self.encoder.encode_blocks(passages)) as encoded:
            for rows, vectors in zip(blocks, encoded, strict=True):
                expected = (len(rows), self.encoder.spec.dim)
                if vectors.shape != expected:
                    raise BuildError(
                        f"encoder {self.encoder.spec.name}: expected vectors {list(expected)}, got {list(vectors.shape)}"
                    )
                yield rows, vectors

    def _write_plan(self, passages: Iterable[Passage]) -> Plan:
        folder, summary = self.workspace.index, CorpusSummary()
        with TextStoreWriter(folder) as store:
            for passage in self.cleaner.kept(summary.watch(passages)):
                store.append(passage)
        manifest = manifest_of_texts(
            folder,
            summary.corpus(),
            self.cleaner,
            spec=self.encoder.spec,
            arithmetic=self.encoder.arithmetic,
            dtype=self.dtype,
            shard_rows=self.shard_rows,
        )
        for name in manifest.files:
            sync(folder / name)
        plan = Plan(how=self.how(), manifest=manifest)
        write_whole(self.workspace.plan, plan.model_dump_json())
        return plan

    def how(self) -> dict[str, Any]:
        """All that decides the bytes, beside the passages."""
        return {
            "created_by": release(),
            "cleaning": self.cleaner.options.model_dump(mode="json"),
            "encoder": self.encoder.spec.recipe(),
            "arithmetic": self.encoder.arithmetic.model_dump(),
            "dtype": self.dtype,
            "shard_rows": self.shard_rows,
        }

    def _refuse(self, differing: str) -> None:
        if differing:
            raise UnfinishedError(
                f"{self.workspace.target}: an unfinished build of something else is in the way ({differing}). Finish it "
                "with the command that began it, or ask for a fresh start"
            )


def blocks_of_like_length(offsets: NDArray[np.int64], part: RowRange) -> list[NDArray[np.int64]]:
    """The rows of a shard, counted from its start, longest line first, in blocks: little of a batch is then padding."""
    lengths = np.diff(offsets[part.start : part.stop + 1])
    order = np.argsort(-lengths, kind="stable")
    return [order[start : start + _BLOCK] for start in range(0, len(order), _BLOCK)]


def _missing(workspace: Workspace, plan: Plan) -> list[RowRange]:
    return [part for part in plan.manifest.ranges if done_shard(workspace.done, part) is None]


def _put_in_place(workspace: Workspace, plan: Plan) -> Manifest:
    """All shards are done, and the workspace is locked."""
    shards = [shard for part in plan.manifest.ranges if (shard := done_shard(workspace.done, part))]
    manifest = with_shards(plan.manifest, shards)
    manifest.save(workspace.index)
    workspace.publish(manifest, plan.how)
    return manifest
