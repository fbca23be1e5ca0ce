"""Smaller, approximate copies of an index, each with the recall that was measured when it was made.

`sq8` keeps a byte a dimension, `pqM` M bytes a vector, `ivfL` a byte a dimension in L lists of which a search reads a part. A
copy lies in the folder of its exact index, which it names by digest; its candidates are scored again from the exact vectors
unless that is switched off.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retrieval.exact_scores import Best, Rows, Scores, Stored, Vectors, exact_scores
from retrieval.faiss_loader import load_faiss
from retrieval.index import check_queries
from retrieval.manifest import ALWAYS_VERIFIED_BYTES, FileEntry
from retrieval.passage import IndexCorruptError, IndexMismatchError, QueryError
from retrieval.row_table import RowTable

FOLDER = "compressed"  # within the folder of the index
_CANDIDATES = 8  # times k are scored again from the exact vectors, and at least so many:
_MIN_CANDIDATES = 64


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
        recipe = checked_recipe(folder, profile, base, sum(map(len, shards)), verify=verify)
        return cls(map_copy(copy_path(folder, profile)), shards, recipe.probes, rescore=rescore)

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


def checked_recipe(folder: Path, profile: str, base: str, rows: int, *, verify: bool) -> Recipe:
    """How the compressed copy `profile` of the index in `folder` was made, once its file was checked.

    Raises:
        IndexMismatchError: it was made from another index than `base` with its `rows`.
        IndexCorruptError: missing or damaged.
    """
    recipe, path = read_recipe(folder, profile), copy_path(folder, profile)
    if (recipe.base, recipe.rows) != (base, rows):
        raise IndexMismatchError(
            f"{path}: made from the index {recipe.base}, used with {base}; {_mend(folder, profile)}"
        )
    hashed = verify or recipe.file.size < ALWAYS_VERIFIED_BYTES
    recipe.file.check(path, hashed=hashed, record=f"{profile}.json", mend=_mend(folder, profile))
    return recipe


def read_recipe(folder: Path, profile: str) -> Recipe:
    """How the compressed copy `profile` of the index in `folder` was made.

    Raises:
        IndexCorruptError: there is none, or it is damaged.
    """
    path = copy_path(folder, profile).with_suffix(".json")
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


def map_copy(path: Path) -> Any:
    """Open an index of FAISS; its codes stay in the file until they are read."""
    faiss = load_faiss()
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise IndexCorruptError(f"{path}: not a readable FAISS index: {error}; make it again") from error


def copy_path(folder: Path, profile: str) -> Path:
    """Where the compressed copy `profile` of the index in `folder` lies; its recipe is beside it, ending in .json."""
    return folder / FOLDER / f"{profile}.faiss"


def _mend(folder: Path, profile: str) -> str:
    return f"run `medverify index compress {folder} --profile {profile}`"
