"""Smaller, approximate copies of an index, each with the recall that was measured when it was made.

`sq8` keeps a byte a dimension, `pqM` M bytes a vector, `ivfL` a byte a dimension in L lists of which a search reads a part. A
copy lies in the folder of its exact index, which it names by digest; its candidates are scored again from the exact vectors
unless that is switched off.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs.durable import publish
from retrieval.exact_scores import Best, Rows, Scores, Stored, Vectors, exact_scores
from retrieval.faiss_loader import load_faiss
from retrieval.index import ExactIndex, check_queries
from retrieval.manifest import ALWAYS_VERIFIED_BYTES, FileEntry, file_entry
from retrieval.passage import BuildError, IndexCorruptError, IndexMismatchError, QueryError
from retrieval.row_table import RowTable

FOLDER = "compressed"  # within the folder of the index
_BLOCK = 2**15  # rows made float32 and added at once
_TRAINING_ROWS = 2**16
_SAMPLE = 200  # queries whose recall is measured
_CANDIDATES = 8  # times k are scored again from the exact vectors, and at least so many:
_MIN_CANDIDATES = 64
_PROBED = 16  # of the lists of an ivf profile, one in so many is read


class Recall(BaseModel):
    """The share of the exact best k that is found, over vectors of sampled passages as queries, their own rows not counted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queries: Annotated[int, Field(ge=1)]
    at_3: Annotated[float, Field(ge=0, le=1, description="With exact scores for the candidates.")]
    at_10: Annotated[float, Field(ge=0, le=1, description="With exact scores for the candidates.")]
    plain_at_3: Annotated[float, Field(ge=0, le=1, description="By the compressed vectors alone.")]
    plain_at_10: Annotated[float, Field(ge=0, le=1, description="By the compressed vectors alone.")]


class Recipe(BaseModel):
    """How a compressed copy was made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    profile: str
    base: Annotated[str, Field(description="Digest of the exact index's manifest.")]
    rows: Annotated[int, Field(ge=1)]
    dim: Annotated[int, Field(ge=1)]
    factory: Annotated[str, Field(description="FAISS's name for the kind of index.")]
    probes: Annotated[int, Field(ge=0, description="Lists that a search reads; 0: there are no lists.")]
    seed: Annotated[int, Field(ge=0, description="Of the training sample, of k-means and of the sampled queries.")]
    trained_on: Annotated[int, Field(ge=1, description="Sampled rows.")]
    file: FileEntry
    recall: Recall

    @property
    def digest(self) -> str:
        """SHA-256 of the recipe's JSON, which holds the checksum of the copy and the digest of its exact index."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class CompressedIndex:
    """A `VectorIndex` that finds most of the exact best rows. Use it from one thread at a time."""

    def __init__(self, index: Any, shards: Sequence[Stored], probes: int, *, rescore: bool = True) -> None:
        """Args:
        index: of FAISS, its ids the rows of the shards; use `open`, which checks that it is the one it should be.
        shards: the exact vectors.
        rescore: order candidates by their exact scores; else by what the compressed vectors give.
        """
        self.rows = int(index.ntotal)
        self.dim = int(index.d)
        self._faiss = load_faiss()
        self._index = index
        self._table = RowTable(shards)
        self._probes = probes
        self._rescore = rescore

    @classmethod
    def open(
        cls,
        folder: Path,
        profile: str,
        base: str,
        shards: Sequence[Stored],
        *,
        rescore: bool = True,
        verify: bool = False,
    ) -> Self:
        """Map the compressed copy `profile` of the index in `folder`, whose digest is `base`.

        Its size is always checked; its SHA-256 if `verify`, or if it is under 64 MB.

        Raises:
            IndexMismatchError: it was made from another index.
            IndexCorruptError: missing or damaged.
        """
        recipe = read_recipe(folder, profile)
        path = _path(folder, profile, "faiss")
        if recipe.base != base or recipe.rows != sum(map(len, shards)):
            raise IndexMismatchError(
                f"{path}: made from the index {recipe.base}, used with {base}; {_mend(folder, profile)}"
            )
        hashed = verify or recipe.file.size < ALWAYS_VERIFIED_BYTES
        recipe.file.check(path, hashed=hashed, record=f"{profile}.json", mend=_mend(folder, profile))
        return cls(_map(path), shards, recipe.probes, rescore=rescore)

    def search(self, vectors: Vectors, k: int) -> tuple[Scores, Rows]:
        """Find about the `k' = min(k, rows)` best rows for each query.

        Returns:
            Scores float32 [q, k'], descending, exact if rescored, and rows int64 [q, k'], ascending among equal scores.

        Raises:
            QueryError: k below 1.
            VectorError: wrong shape or type, NaN or infinity.
            IndexCorruptError: the search came upon NaN or infinity.
        """
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        check_queries(vectors, self.dim)
        k = min(k, self.rows)
        best = Best(len(vectors), k)
        if len(vectors):
            queries = np.ascontiguousarray(vectors)
            rough, rows = self._candidates(queries, min(self.rows, max(k * _CANDIDATES, _MIN_CANDIDATES)), k)
            numbers, places = np.nonzero(rows >= 0)
            chosen = rows[numbers, places]
            scores = (
                exact_scores(queries, self._table.wide, numbers, chosen) if self._rescore else rough[numbers, places]
            )
            best.add(numbers, scores, chosen)
        if not best.whole:
            raise IndexCorruptError(
                "the index holds NaN or infinity; run `medverify index verify` on it, and rebuild it"
            )
        return best.scores, best.rows

    def _candidates(self, queries: Vectors, count: int, needed: int) -> tuple[Scores, Rows]:
        """Scores and rows [q, count], at least `needed` of them real in each line; the row is -1 where there is none."""
        if not self._probes:
            found: tuple[Scores, Rows] = self._index.search(queries, count)
            return found
        scores, rows = self._probe(queries, count, self._probes)
        short = (rows >= 0).sum(axis=1) < needed
        if short.any():  # the lists that were read held too little: read all
            scores[short], rows[short] = self._probe(queries[short], count, self._index.nlist)
        return scores, rows

    def _probe(self, queries: Vectors, count: int, lists: int) -> tuple[Scores, Rows]:
        options = self._faiss.SearchParametersIVF(nprobe=lists)
        found: tuple[Scores, Rows] = self._index.search(queries, count, params=options)
        return found


def compress(folder: Path, base: str, shards: Sequence[Stored], profile: str, *, seed: int = 0) -> Recipe:
    """Make the compressed copy `profile` of the index in `folder`, whose digest is `base`, and measure its recall.

    Raises:
        BuildError: no such profile, or too few vectors for it.
    """
    exact = ExactIndex(shards, device="cpu")  # for some sampled queries: not worth a copy on every GPU
    generator = np.random.default_rng(seed)
    factory, probes, least = _kind(profile, exact.dim)
    if exact.rows < least:
        raise BuildError(
            f"{profile} needs at least {least} vectors, the index has {exact.rows}; keep it exact, or use sq8"
        )
    sample = np.sort(generator.permutation(exact.rows)[: max(_TRAINING_ROWS, least)])
    index = _fill(factory, exact.dim, shards, _take(shards, sample), seed)
    path = _path(folder, profile, "faiss")
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".faiss.tmp")
    load_faiss().write_index(index, str(temporary))
    del index
    recall = _measure(exact, temporary, shards, probes, generator)
    recipe = Recipe(
        profile=profile,
        base=base,
        rows=exact.rows,
        dim=exact.dim,
        factory=factory,
        probes=probes,
        seed=seed,
        trained_on=len(sample),
        file=file_entry(temporary),
        recall=recall,
    )
    publish(temporary, path)
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(recipe.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    publish(temporary, path.with_suffix(".json"))
    return recipe


def read_recipe(folder: Path, profile: str) -> Recipe:
    """How the compressed copy `profile` of the index in `folder` was made.

    Raises:
        IndexCorruptError: there is none, or it is damaged.
    """
    path = _path(folder, profile, "json")
    try:
        return Recipe.model_validate_json(path.read_bytes())
    except OSError as error:
        raise IndexCorruptError(f"{path}: cannot be read ({error.strerror}); {_mend(folder, profile)}") from error
    except ValidationError as error:
        raise IndexCorruptError(f"{path}: not a recipe: {error}; {_mend(folder, profile)}") from error


def read_recipes(folder: Path) -> list[Recipe]:
    """How the compressed copies of the index in `folder` were made, by name.

    Raises:
        IndexCorruptError: one is damaged.
    """
    return [read_recipe(folder, path.stem) for path in sorted((folder / FOLDER).glob("*.json"))]


def _kind(profile: str, dim: int) -> tuple[str, int, int]:
    """FAISS's name for a profile, the lists that a search reads, and the least number of vectors to train it."""
    match = re.fullmatch(r"(sq8)|pq([1-9]\d*)|ivf([1-9]\d*)", profile)
    if match is None:
        raise BuildError(
            f"{profile!r} is not a compressed profile; expected sq8, pq and bytes a vector, or ivf and lists"
        )
    if match[1]:
        return "SQ8", 0, 1
    if match[2]:
        if dim % int(match[2]):
            raise BuildError(f"{profile}: {dim} dimensions cannot be cut into {match[2]} equal parts; take a divisor")
        return f"PQ{match[2]}np", 0, 256  # np: without training for polysemous codes, which takes long and is not used
    return f"IVF{match[3]},SQ8", -(-int(match[3]) // _PROBED), int(match[3])


def _fill(factory: str, dim: int, shards: Sequence[Stored], sample: Vectors, seed: int) -> Any:
    faiss = load_faiss()
    index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    for part in ("pq", "cp"):  # what k-means draws from
        if hasattr(index, part):
            clustering = index.pq.cp if part == "pq" else index.cp
            clustering.seed = seed + 1
            clustering.min_points_per_centroid = 1  # or FAISS complains on standard error
    index.train(sample)
    for shard in shards:
        for start in range(0, len(shard), _BLOCK):
            index.add(np.ascontiguousarray(shard[start : start + _BLOCK], dtype=np.float32))
    return index


def _take(shards: Sequence[Stored], rows: Rows) -> Vectors:
    """Rows of the index as float32 [n, dim]; `rows` ascending."""
    borders = np.cumsum([0, *map(len, shards)])
    cuts = np.searchsorted(rows, borders)
    parts = [
        np.asarray(shard)[rows[cuts[number] : cuts[number + 1]] - borders[number]].astype(np.float32)
        for number, shard in enumerate(shards)
    ]
    return np.concatenate(parts)


def _measure(
    exact: ExactIndex, path: Path, shards: Sequence[Stored], probes: int, generator: np.random.Generator
) -> Recall:
    sample = np.sort(generator.permutation(exact.rows)[:_SAMPLE])
    queries = _take(shards, sample)
    expected = exact.search(queries, 11)[1]
    index = _map(path)
    rescored, plain = (
        CompressedIndex(index, shards, probes, rescore=rescore).search(queries, 11)[1] for rescore in (True, False)
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


def _map(path: Path) -> Any:
    """Open an index of FAISS; its codes stay in the file until they are read."""
    faiss = load_faiss()
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise IndexCorruptError(f"{path}: not a readable FAISS index: {error}; make it again") from error


def _path(folder: Path, profile: str, suffix: str) -> Path:
    return folder / FOLDER / f"{profile}.{suffix}"


def _mend(folder: Path, profile: str) -> str:
    return f"run `medverify index compress {folder} --profile {profile}`"
