"""Build an index folder: all of it or nothing.

Everything is written into a hidden sibling of the target, flushed to the disk, and renamed into place. A build that is
killed leaves no half index at the target, and the next build clears what it left behind. Nothing that is written depends
on the time, the place or chance, so two builds from the same passages and encoder give the same bytes.
"""

import fcntl
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import numpy as np

from retrieval.encoder import Encoder, Vectors
from retrieval.faiss_loader import load_faiss
from retrieval.manifest import MANIFEST_FILE, CorpusSummary, Manifest, RowRange, file_entry
from retrieval.passage import BuildError, Passage, VectorError
from retrieval.textstore import OFFSETS_FILE, PASSAGES_FILE, TextStore, TextStoreWriter

VECTORS_FILE = "index.faiss"
_BLOCK = 128  # passages between two reports of progress

Progress = Callable[[int, int], None]


def build_index(
    passages: Iterable[Passage],
    encoder: Encoder,
    out_folder: Path,
    *,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Manifest:
    """Clean, encode and index `passages`, in their order, and return the manifest.

    Passages without text, and those whose text already occurred (the first one stays), are left out and counted in the
    manifest. `on_progress(done, total)` is called as passages are encoded. Memory: twice rows * dim * 4 bytes.

    Raises:
        BuildError: the target exists and `overwrite` is false, or is not an index; another build is writing to it; two
            passages of one corpus share an id; nothing is left to index; the encoder has no digest.
        RetrievalError: whatever the passages' source or the encoder raises; the target is then as it was.
    """
    target = out_folder.resolve()
    if not (encoder.spec.query_model.digest and encoder.spec.passage_model.digest):
        raise BuildError(f"encoder {encoder.spec.name} is not pinned: its spec has no weight digests")
    with _workspace(target, overwrite) as folder:
        summary, dropped = _write_texts(passages, folder)
        with TextStore(folder) as texts:
            rows = len(texts)
            if rows == 0:
                raise BuildError(f"nothing to index: of {summary.corpus().passages} passages, dropped {dict(dropped)}")
            _save(_encode(texts, encoder, on_progress), folder / VECTORS_FILE)
        manifest = Manifest(
            created_by=f"medverify {_release()}",
            corpus=summary.corpus(),
            dropped=dict(dropped),
            encoder=encoder.spec,
            rows=rows,
            ranges=(RowRange(file=VECTORS_FILE, start=0, stop=rows),),
            files={name: file_entry(folder / name) for name in (PASSAGES_FILE, OFFSETS_FILE, VECTORS_FILE)},
        )
        manifest.save(folder)
    return manifest


def _write_texts(passages: Iterable[Passage], folder: Path) -> tuple[CorpusSummary, Counter[str]]:
    """Write the passages that are worth indexing; return a summary of all, and counts of those left out by reason."""
    summary, dropped = CorpusSummary(), Counter(empty=0, duplicate=0)
    texts, ids = set[bytes](), set[bytes]()  # digests, not strings: corpora have tens of millions of passages
    with TextStoreWriter(folder) as store:
        for passage in passages:
            summary.add(passage)
            identity = _fingerprint(f"{passage.corpus}\0{passage.id}")
            if identity in ids:
                raise BuildError(f"corpus {passage.corpus!r} has two passages with the id {passage.id!r}")
            ids.add(identity)
            text = _fingerprint(passage.text)
            if not passage.text.strip():
                dropped["empty"] += 1
            elif text in texts:
                dropped["duplicate"] += 1
            else:
                texts.add(text)
                store.append(passage)
    return summary, dropped


def _fingerprint(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _encode(texts: TextStore, encoder: Encoder, on_progress: Progress | None) -> Vectors:
    """Encode all passages of the store: float32 [rows, dim]."""
    total = len(texts)
    vectors = np.empty((total, encoder.spec.dim), dtype=np.float32)
    for start in range(0, total, _BLOCK):
        stop = min(start + _BLOCK, total)
        block = encoder.encode_passages([texts.get(row) for row in range(start, stop)])
        if block.shape != (stop - start, encoder.spec.dim):
            expected = [stop - start, encoder.spec.dim]
            raise BuildError(f"encoder {encoder.spec.name}: expected vectors {expected}, got {list(block.shape)}")
        vectors[start:stop] = block
        if on_progress:
            on_progress(stop, total)
    return vectors


def _save(vectors: Vectors, path: Path) -> None:
    if not np.isfinite(vectors).all():
        raise VectorError("vectors to be indexed hold NaN or infinity")
    faiss = load_faiss()
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(path))


@contextmanager
def _workspace(target: Path, overwrite: bool) -> Iterator[Path]:
    """A fresh folder beside the target, moved to the target on success and removed on failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.building")
    retired = target.with_name(f".{target.name}.retired")
    with _lock(target):
        if retired.exists() and not target.exists():
            retired.rename(target)  # a build was killed between the two renames of `_publish`
        _check_target(target, overwrite)
        _remove(temporary)
        _remove(retired)
        temporary.mkdir()
        try:
            yield temporary
            _publish(temporary, target, retired)
        except BaseException:
            _remove(temporary)
            raise


@contextmanager
def _lock(target: Path) -> Iterator[None]:
    """Hold off other builds of the same target.

    The empty lock file stays behind: if it were removed, two builds could each hold a lock on a file of that name.
    """
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BuildError(f"{target}: another process is building this index; wait for it to finish") from error
        yield


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise BuildError(f"{target} exists; choose another folder, or ask for it to be overwritten")
    if not (target / MANIFEST_FILE).is_file():
        raise BuildError(f"{target} is not an index (it has no {MANIFEST_FILE}) and will not be overwritten")


def _publish(temporary: Path, target: Path, retired: Path) -> None:
    """Flush and rename. A folder cannot be renamed onto a full one, so an old index steps aside first.

    Readers that have the old one open keep its files.
    """
    for path in [*temporary.iterdir(), temporary]:
        _sync(path)
    if target.exists():
        target.rename(retired)
    temporary.rename(target)
    _sync(target.parent)
    _remove(retired)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _release() -> str:
    """The installed release, or `source` when run from a checkout that was never installed."""
    try:
        return metadata.version("medverify")
    except metadata.PackageNotFoundError:
        return "source"
