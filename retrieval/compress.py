"""Making smaller copies of an index, and measuring what they miss: see `compressed`."""

import fcntl
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configs.durable import publish, write_whole
from retrieval.compressed import FOLDER, CompressedIndex, Recall, Recipe, copy_path, map_copy
from retrieval.exact_scores import Rows, Stored, Vectors
from retrieval.faiss_loader import load_faiss
from retrieval.index import ExactIndex
from retrieval.manifest import file_entry
from retrieval.passage import BuildError
from retrieval.row_table import RowTable

_BLOCK = 2**15  # rows made float32 and added at once
_TRAINING_ROWS = 2**16
_SAMPLE = 200  # queries whose recall is measured
_PROBED = 16  # of the lists of an ivf profile, one in so many is read


class _Kind(NamedTuple):
    factory: str  # FAISS's name
    probes: int  # lists that a search reads; 0: there are none
    least: int  # vectors that training needs


def compress(folder: Path, base: str, shards: Sequence[Stored], profile: str, *, seed: int = 0) -> Recipe:
    """Make the compressed copy `profile` of the index in `folder`, whose digest is `base`, and measure its recall.

    Raises:
        BuildError: no such profile, or too few vectors for it.
    """
    table = RowTable(shards)
    kind = _kind(profile, table.dim)
    if len(table) < kind.least:
        raise BuildError(
            f"{profile} needs at least {kind.least} vectors, the index has {len(table)}; keep it exact, or use sq8"
        )
    with _alone(folder):
        return _make(copy_path(folder, profile), base, table, kind, seed)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / f".{FOLDER}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BuildError(f"{folder / FOLDER}: another process is compressing; wait for it to finish") from error
        yield


def _make(path: Path, base: str, table: RowTable, kind: _Kind, seed: int) -> Recipe:
    generator = np.random.default_rng(seed)
    sample = np.sort(generator.permutation(len(table))[: max(_TRAINING_ROWS, kind.least)])
    index = _fill(kind.factory, table, _take(table, sample), seed)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".faiss.tmp")
    load_faiss().write_index(index, str(temporary))
    del index
    recipe = Recipe(
        profile=path.stem,
        base=base,
        rows=len(table),
        dim=table.dim,
        factory=kind.factory,
        probes=kind.probes,
        seed=seed,
        trained_on=len(sample),
        file=file_entry(temporary),
        recall=_measure(table, temporary, kind.probes, generator),
    )
    described = path.with_suffix(".json")
    described.unlink(
        missing_ok=True
    )  # killed before the next line but one, this leaves no copy, and none that seems damaged
    publish(temporary, path)
    write_whole(described, json.dumps(recipe.model_dump(mode="json"), indent=1) + "\n")
    return recipe


def _kind(profile: str, dim: int) -> _Kind:
    match = re.fullmatch(r"(sq8)|pq([1-9]\d*)|ivf([1-9]\d*)", profile)
    if match is None:
        raise BuildError(
            f"{profile!r} is not a compressed profile; expected sq8, pq and bytes a vector, or ivf and lists"
        )
    if match[1]:
        return _Kind("SQ8", 0, 1)
    if match[2]:
        if dim % int(match[2]):
            raise BuildError(f"{profile}: {dim} dimensions cannot be cut into {match[2]} equal parts; take a divisor")
        # np: without training for polysemous codes, which takes long and is not used
        return _Kind(f"PQ{match[2]}np", 0, 256)
    return _Kind(f"IVF{match[3]},SQ8", -(-int(match[3]) // _PROBED), int(match[3]))


def _fill(factory: str, table: RowTable, sample: Vectors, seed: int) -> Any:
    faiss = load_faiss()
    index = faiss.index_factory(table.dim, factory, faiss.METRIC_INNER_PRODUCT)
    for part in ("pq", "cp"):  # what k-means draws from
        if hasattr(index, part):
            clustering = index.pq.cp if part == "pq" else index.cp
            clustering.seed = seed + 1
            clustering.min_points_per_centroid = 1  # or FAISS complains on standard error
    index.train(sample)
    for number, span in table.spans(0, len(table), _BLOCK):
        index.add(table.shards[number][span].astype(np.float32, copy=False))
    return index


def _take(table: RowTable, rows: Rows) -> Vectors:
    """Rows of the index as float32 [n, dim]."""
    taken = np.empty((len(rows), table.dim), dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        taken[start : start + _BLOCK] = table.wide(rows[start : start + _BLOCK])
    return taken


def _measure(table: RowTable, path: Path, probes: int, generator: np.random.Generator) -> Recall:
    sample = np.sort(generator.permutation(len(table))[:_SAMPLE])
    queries = _take(table, sample)
    # On the CPU: some sampled queries are not worth a copy of the index on every GPU.
    expected = ExactIndex(table.shards, device="cpu").search(queries, 11)[1]
    index = map_copy(path)
    rescored, plain = (
        CompressedIndex(index, table.shards, probes, rescore=rescore).search(queries, 11)[1]
        for rescore in (True, False)
    )
    return Recall(
        queries=len(sample),
        at_3=_recall(rescored, expected, sample, 3),
        at_10=_recall(rescored, expected, sample, 10),
        plain_at_3=_recall(plain, expected, sample, 3),
        plain_at_10=_recall(plain, expected, sample, 10),
    )


def _recall(found: Rows, expected: Rows, own: Rows, k: int) -> float:
    """Share of the expected first k that are among the found first k, a query's own row left out of both."""
    shares = []
    for ours, theirs, row in zip(found, expected, own, strict=True):
        wanted = set(theirs[theirs != row][:k])
        shares.append(len(wanted & set(ours[ours != row][:k])) / len(wanted) if wanted else 1.0)
    return float(np.mean(shares))
