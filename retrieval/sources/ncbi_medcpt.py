"""NCBI's ready MedCPT vectors of PubMed: passages with the vectors that go with them, so that nothing need be encoded.

A folder holds, for each chunk i: `embeds_chunk_i.npy`, float32 [n, 768]; `pmids_chunk_i.json`, a list of n PMIDs, one for
each row; `pubmed_chunk_i.json`, an object that maps each PMID to its article, `{d: date, t: title, a: abstract, m: MeSH}`.
The files come without checksums, so every chunk is checked for fitting together, and `prove_parity` encodes a sample again
to see that the vectors are those of the encoder that queries will be encoded for.

An article without an abstract has the vector of its title alone. It is read as a passage with a blank text, which is dropped
when the corpus is cleaned, and counted.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import strict_json
from retrieval.encoder import Encoder, Vectors
from retrieval.manifest import Parity
from retrieval.passage import IndexMismatchError, Passage, SourceError, VectorError

CORPUS = "pubmed"
DIM = 768
PARITY_SAMPLE = 128  # articles that are encoded again, of all chunks: there are 38
_MIN_COSINE, _MAX_DIFFERENCE = 0.999, 0.02  # for other hardware and half precision; all else is far outside
_BLOCK = 4096  # articles
_FILES = ("embeds_chunk_{}.npy", "pmids_chunk_{}.json", "pubmed_chunk_{}.json")
_NUMBERED = re.compile("|".join(name.replace(".", r"\.").format(r"(\d+)") for name in _FILES))
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d")


@dataclass(frozen=True)
class Chunk:
    """One chunk, checked: `vectors[row]` belongs to `pmids[row]`."""

    number: int
    pmids: Sequence[str]
    vectors: NDArray[np.float32]  # [n, 768], mapped from the file


class NcbiMedcptChunks:
    """The chunks of a folder, of which one at a time is in memory."""

    def __init__(self, folder: Path) -> None:
        """List the chunks.

        Raises:
            SourceError: there is none, or one of 0 up to the highest number that any file has lacks a file.
        """
        self._folder = folder
        there = {path.name for path in folder.glob("*_chunk_*")}
        found = filter(None, map(_NUMBERED.fullmatch, there))
        highest = max((int(match[match.lastindex or 0]) for match in found), default=-1)
        #: Numbers of the chunks, ascending.
        self.numbers = tuple(range(highest + 1))
        if not self.numbers:
            raise SourceError(f"corpus ncbi-medcpt: {folder} has no {_FILES[0].format('*')}")
        missing = [
            name.format(number) for number in self.numbers for name in _FILES if name.format(number) not in there
        ]
        if missing:
            listed = ", ".join(missing[:8]) + (", …" if len(missing) > 8 else "")
            raise SourceError(
                f"corpus ncbi-medcpt: {folder} has files of chunk {highest}, but {listed} is missing; get it, or remove all "
                "files of the chunks behind the last that is to be read"
            )

    def chunk(self, number: int) -> Chunk:
        """PMIDs and vectors of a chunk.

        Raises:
            SourceError: a file cannot be read, or the two do not fit together.
        """
        path = self._folder / f"embeds_chunk_{number}.npy"
        try:
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise SourceError(f"{path}: not a readable array, or cut off: {error}") from error
        if vectors.dtype != np.float32 or vectors.ndim != 2 or vectors.shape[1] != DIM:
            raise SourceError(f"{path}: expected float32 [n, {DIM}], found {vectors.dtype} {list(vectors.shape)}")
        listed = _json(self._pmids_path(number), list)
        if len(listed) != len(vectors):
            raise SourceError(
                f"chunk {number} of {self._folder} is misaligned: {len(vectors)} vectors, {len(listed)} PMIDs"
            )
        pmids = [str(pmid) for pmid in listed]
        if len(set(pmids)) != len(pmids):
            raise SourceError(f"chunk {number} of {self._folder} is misaligned: a PMID is listed twice")
        return Chunk(number, pmids, vectors)

    def passages(self) -> Iterator[Passage]:
        """The articles of all chunks, in the order of their rows.

        Raises:
            SourceError: as `chunk`, and if its articles are not those that its rows are listed for.
        """
        for number in self.numbers:
            yield from self.articles(self.chunk(number))

    def blocks(self) -> Iterator[tuple[list[Passage], Vectors]]:
        """The articles with their vectors, float32 [n, 768]: what `ready_vectors.build_from_vectors` takes.

        Raises:
            SourceError: as `passages`.
            VectorError: a vector is not finite; names the PMID.
        """
        for number in self.numbers:
            chunk = self.chunk(number)
            passages = self.articles(chunk)
            for start in range(0, len(chunk.pmids), _BLOCK):
                vectors = np.asarray(chunk.vectors[start : start + _BLOCK])
                finite = np.isfinite(vectors).all(axis=1)
                if not finite.all():
                    pmid = chunk.pmids[start + int(np.argmin(finite))]
                    raise VectorError(
                        f"chunk {number} of {self._folder}: NaN or infinity for PMID {pmid}; encode the passages instead"
                    )
                yield list(islice(passages, len(vectors))), vectors

    def articles(self, chunk: Chunk) -> Iterator[Passage]:
        """The articles of a chunk, in the order of its rows. Raises SourceError as `passages`."""
        path = self._articles_path(chunk.number)
        articles = _json(path, dict)
        odd = next(iter(articles.keys() ^ set(chunk.pmids)), None)
        if odd is not None:
            side = "no vector" if odd in articles else "no article"
            raise SourceError(f"chunk {chunk.number} of {self._folder} is misaligned: PMID {odd} has {side}")
        for pmid in chunk.pmids:
            yield _passage(pmid, articles[pmid], path)

    def _pmids_path(self, number: int) -> Path:
        return self._folder / f"pmids_chunk_{number}.json"

    def _articles_path(self, number: int) -> Path:
        return self._folder / f"pubmed_chunk_{number}.json"


def prove_parity(chunks: NcbiMedcptChunks, encoder: Encoder, *, sample: int = PARITY_SAMPLE, seed: int = 0) -> Parity:
    """Encode a sample again and compare.

    Articles that have an abstract are drawn by `seed`, at least one of each chunk that has any. Another pooling, another
    model or swapped rows are far outside of the tolerance.

    Raises:
        IndexMismatchError: a vector of the sample is further from the fresh one than the tolerance, or has other dimensions.
        SourceError: a chunk that cannot be used, or no article with an abstract in any.
    """
    if encoder.spec.dim != DIM:
        raise IndexMismatchError(
            f"ready vectors: not those of {encoder.spec.name}: they have {DIM} dimensions, its have {encoder.spec.dim}; name "
            "the encoder that made them, or encode the passages instead"
        )
    passages, ready = _sample(chunks, sample, random.Random(seed))  # noqa: S311 - a sample, not a secret
    fresh = encoder.encode_passages(passages).astype(np.float64)
    lengths = np.linalg.norm(fresh, axis=1)
    cosines = (ready * fresh).sum(axis=1) / np.maximum(np.linalg.norm(ready, axis=1) * lengths, np.finfo(float).tiny)
    differences = np.linalg.norm(ready - fresh, axis=1) / lengths
    worst = int(np.argmax(differences))
    parity = Parity(
        seed=seed,
        ids=tuple(passage.id for passage in passages),
        min_cosine=float(cosines.min()),
        max_difference=float(differences.max()),
    )
    if not (parity.min_cosine >= _MIN_COSINE and parity.max_difference <= _MAX_DIFFERENCE):  # NaN is far as well
        raise IndexMismatchError(
            f"ready vectors: not those of {encoder.spec.name}: in a sample of {len(passages)} the lowest cosine is "
            f"{parity.min_cosine:.4f} (at least {_MIN_COSINE}), the greatest difference {parity.max_difference:.4f} (at "
            f"most {_MAX_DIFFERENCE}), worst PMID {passages[worst].id}; encode the passages instead"
        )
    return parity


def _sample(chunks: NcbiMedcptChunks, size: int, draw: random.Random) -> tuple[list[Passage], NDArray[np.float64]]:
    """Articles with an abstract, and their ready vectors [n, 768]."""
    numbers = chunks.numbers
    passages, vectors = list[Passage](), list[NDArray[np.float64]]()
    for place, number in enumerate(numbers):
        chunk = chunks.chunk(number)
        share = max(1, size // len(numbers) + (place < size % len(numbers)))
        fit = (pair for pair in enumerate(chunks.articles(chunk)) if pair[1].text.strip())
        kept = list(islice(fit, share))
        for seen, pair in enumerate(fit, start=share + 1):  # so that each has the same chance, and few are in memory
            if (seat := draw.randrange(seen)) < share:
                kept[seat] = pair
        passages += [passage for _, passage in kept]
        vectors.append(chunk.vectors[np.array([row for row, _ in kept], dtype=np.int64)].astype(np.float64))
    if not passages:
        raise SourceError("ready vectors: there is no article with an abstract to encode again")
    return passages, np.concatenate(vectors)


def _passage(pmid: str, article: Any, path: Path) -> Passage:
    if not isinstance(article, dict) or not all(isinstance(article.get(key, ""), str) for key in "dta"):
        raise SourceError(f"{path}, PMID {pmid}: expected an object with the strings d, t and a, found {article!r:.80}")
    year = _YEAR.match(article.get("d", ""))
    return Passage(
        id=pmid,
        title=article.get("t", ""),
        text=article.get("a") or " ",
        source=f"PubMed {pmid}",
        corpus=CORPUS,
        year=int(year[0]) if year else None,
    )


def _json(path: Path, kind: type) -> Any:
    try:
        content = strict_json.parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: not readable JSON, or cut off: {error}") from error
    if not isinstance(content, kind):
        raise SourceError(f"{path}: expected a JSON {kind.__name__}, found {type(content).__name__}")
    return content
