"""The `bm25` profile: passages that share words with the query (Robertson and Zaragoza 2009), scored by the bm25s library.

The conventions are Lucene's, because published BM25 figures mostly are: its idf, its stop words, k1 = 1.2, b = 0.75, English
stemming. Words of one letter count, as in Lucene: medicine needs the D of vitamin D and the B of hepatitis B.

The word index lies in the folder `bm25` of the index that it was made from, with a description that ties it to that index.
"""

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs.durable import sync
from retrieval.manifest import ALWAYS_VERIFIED_BYTES, FileEntry, Manifest, Sha256, file_entry
from retrieval.passage import BuildError, IndexCorruptError, IndexMismatchError, QueryError
from retrieval.ranker import Ranking
from retrieval.textstore import TextStore

FOLDER = "bm25"
DESCRIPTION_FILE = "bm25.json"
_WORD = r"\w+"
_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was "
    "will with"
)
_BLOCK = 1024  # passages between two reports of progress


class Recipe(BaseModel):
    """Everything that decides which words a text has and what a shared word is worth."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Literal["title text"] = "title text"
    word: Annotated[str, Field(description="Regular expression; applied to lower-cased text.")] = _WORD
    stop_words: str = _STOP_WORDS
    stemmer: Annotated[str, Field(description="Algorithm and the release of PyStemmer, whose rules change with it.")]
    method: Literal["lucene"] = "lucene"
    k1: float = 1.2
    b: float = 0.75

    @classmethod
    def current(cls) -> Self:
        """The recipe of this release with what is installed."""
        return cls(stemmer=f"snowball english, PyStemmer {metadata.version('PyStemmer')}")


class Description(BaseModel):
    """What `bm25.json` says about the files beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    base: Annotated[Sha256, Field(description="Digest of the index's manifest.")]
    rows: Annotated[int, Field(ge=1)]
    library: Annotated[str, Field(description="What wrote the files.")]
    recipe: Recipe
    files: dict[str, FileEntry]

    @property
    def digest(self) -> str:
        """SHA-256 of the description's canonical JSON; it covers the manifest's digest and those of all files."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()


def add_bm25(folder: Path, on_progress: Callable[[int, int], None] | None = None) -> Description:
    """Add a word index to the index in `folder`, or replace the one it has. Killed at any moment, it leaves none or a whole one.

    Memory: about 55 bytes for each different word of each passage. The same index and library give the same bytes.

    Raises:
        IndexCorruptError: the index is damaged.
        BuildError: no passage has a word, or another process is adding a word index.
    """
    import bm25s

    manifest = Manifest.load(folder)
    target, temporary = folder / FOLDER, folder / f".{FOLDER}.building"
    with (folder / f".{FOLDER}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BuildError(f"{target}: another process is building it; wait for it to finish") from error
        shutil.rmtree(temporary, ignore_errors=True)  # of a build that was killed
        temporary.mkdir()
        try:
            recipe = Recipe.current()
            with TextStore(folder) as texts:
                if len(texts) != manifest.rows:
                    raise IndexCorruptError(
                        f"{folder}: {len(texts)} passages and {manifest.rows} rows; rebuild the index"
                    )
                words = _word_ids(texts, recipe, on_progress)
            if not words.vocab:
                raise BuildError(f"{folder}: no passage has a word to search for")
            index = bm25s.BM25(k1=recipe.k1, b=recipe.b, method=recipe.method)
            index.index(words, create_empty_token=False, show_progress=False)
            index.save(temporary, show_progress=False)
            description = Description(
                base=manifest.digest,
                rows=manifest.rows,
                library=f"bm25s {metadata.version('bm25s')}",
                recipe=recipe,
                files={path.name: file_entry(path) for path in sorted(temporary.iterdir())},
            )
            (temporary / DESCRIPTION_FILE).write_text(description.model_dump_json(indent=1) + "\n", encoding="utf-8")
            for path in [*temporary.iterdir(), temporary]:
                sync(path)
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
            sync(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return description


class Bm25Ranker:
    """The passages with the highest BM25 scores.

    Only passages that share a word with the query are found. There may be fewer than k of them, or none: an empty ranking is
    then the true answer, "no passage has any of these words", and not a failure, which would be raised.
    """

    profile = "bm25"

    def __init__(self, index: Any, description: Description) -> None:
        """Use `open`, which checks that the two belong together.

        Args:
            index: a filled bm25s.BM25.
        """
        self.digest = description.digest
        self._index = index
        self._words = _Words(description.recipe)

    @classmethod
    def open(cls, folder: Path, manifest: Manifest, *, verify: bool = False) -> Self:
        """Map the word index in `folder`, which has this manifest.

        Sizes of files are always checked; their SHA-256 if `verify`, or if they are under 64 MB.

        Raises:
            IndexMismatchError: there is none, or it was made from another index, or by other rules than are used here.
            IndexCorruptError: a file is missing or damaged.
        """
        import bm25s

        place = folder / FOLDER
        if not place.is_dir():
            raise IndexMismatchError(f"{folder} has no word index; run `medverify index add-bm25 {folder}`")
        description = checked_description(folder, manifest, verify=verify)
        again = f"run `medverify index add-bm25 {folder}` again"
        if (recipe := Recipe.current()) != description.recipe:
            ours, theirs = recipe.model_dump(), description.recipe.model_dump()
            differing = "; ".join(
                f"{key}: {theirs[key]!r}, here {ours[key]!r}" for key in ours if ours[key] != theirs[key]
            )
            raise IndexMismatchError(f"{place}: made by other rules ({differing}); {again}")
        try:
            index = bm25s.BM25.load(place, mmap=True, show_progress=False)
            rows = index.scores["num_docs"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IndexCorruptError(f"{place}: cannot be loaded: {error!r}; {again}") from error
        if rows != manifest.rows:
            raise IndexCorruptError(f"{place}: {rows} rows, the index has {manifest.rows}; {again}")
        return cls(index, description)

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        """The at most k passages that share a word with each query.

        Raises:
            QueryError: k below 1.
        """
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        return [self._rank(query, k) for query in queries]

    def _rank(self, query: str, k: int) -> Ranking:
        # Sorted, so that the order of the words does not decide the last bits of a sum.
        ids = sorted(self._index.get_tokens_ids(self._words(query)))
        if not ids:
            return Ranking(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
        return best(self._index.get_scores_from_ids(ids), k)


def best(scores: NDArray[np.float32], k: int) -> Ranking:
    """The k highest of the positive scores, float32 [rows]; equal ones by ascending row, also where k cuts through them."""
    rows = np.flatnonzero(scores > 0)
    if len(rows) > k:
        cut = np.partition(scores[rows], -k)[-k]
        above, level = rows[scores[rows] > cut], rows[scores[rows] == cut]
        rows = np.concatenate([above, level[: k - len(above)]])
    rows = rows[np.lexsort((rows, -scores[rows]))]
    return Ranking(rows, scores[rows])


class _Words:
    """Splits a text into the words that count, stemmed. Remembers the stems that it has met."""

    def __init__(self, recipe: Recipe) -> None:
        import Stemmer

        self._find = re.compile(recipe.word).findall
        self._stop = frozenset(recipe.stop_words.split())
        self._stem = Stemmer.Stemmer("english").stemWords

    def __call__(self, text: str) -> list[str]:
        return self._stem([word for word in self._find(text.lower()) if word not in self._stop])  # type: ignore[no-any-return]


def _word_ids(texts: TextStore, recipe: Recipe, on_progress: Callable[[int, int], None] | None) -> Any:
    """The corpus as bm25s takes it: the ids of each passage's words, numbered as they first occur."""
    from bm25s.tokenization import Tokenized

    split, vocabulary = _Words(recipe), dict[str, int]()
    ids = list[list[int]]()
    for row in range(len(texts)):
        passage = texts.get(row)
        ids.append([vocabulary.setdefault(word, len(vocabulary)) for word in split(f"{passage.title} {passage.text}")])
        if on_progress and ((row + 1) % _BLOCK == 0 or row + 1 == len(texts)):
            on_progress(row + 1, len(texts))
    return Tokenized(ids=ids, vocab=vocabulary)


def _load_description(place: Path) -> Description:
    path = place / DESCRIPTION_FILE
    try:
        return Description.model_validate_json(path.read_bytes())
    except OSError as error:
        raise IndexCorruptError(f"{path}: cannot be read ({error.strerror}); add the word index again") from error
    except ValidationError as error:
        raise IndexCorruptError(f"{path}: not a description of a word index: {error}; add it again") from error


def checked_description(folder: Path, manifest: Manifest, *, verify: bool) -> Description:
    """What the word index of `folder`, which has this manifest, says about itself, once its files were checked.

    Raises:
        IndexMismatchError: it was made from another index.
        IndexCorruptError: a file is missing or damaged.
    """
    place = folder / FOLDER
    description = _load_description(place)
    if description.base != manifest.digest:
        raise IndexMismatchError(
            f"{place}: base: it was made from the index {description.base}, this one is {manifest.digest}; run "
            f"`medverify index add-bm25 {folder}` again"
        )
    hashed = verify or sum(entry.size for entry in description.files.values()) < ALWAYS_VERIFIED_BYTES
    for name, entry in description.files.items():
        entry.check(place / name, hashed=hashed, record=DESCRIPTION_FILE, mend="add the word index again")
    return description
