"""NCBI's ready MedCPT vectors of PubMed: passages with the vectors that go with them, so that nothing need be encoded.

A folder holds, for each chunk i: `embeds_chunk_i.npy`, float32 [n, 768]; `pmids_chunk_i.json`, a list of n PMIDs, one for
each row; `pubmed_chunk_i.json`, an object that maps each PMID to its article, `{d: date, t: title, a: abstract, m: MeSH}`.
The files come without checksums, so every chunk is checked for fitting together, and `prove_parity` encodes a sample again
to see that the vectors are those of the encoder that queries will be encoded for.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from retrieval.encoder import Encoder, Vectors
from retrieval.encoder_spec import EncoderSpec
from retrieval.passage import IndexMismatchError, Passage, SourceError, VectorError

CORPUS = "pubmed"
DIM = 768
_EMBEDS = re.compile(r"embeds_chunk_(\d+)\.npy")
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
            SourceError: there is none, or one lacks a file.
        """
        self._folder = folder
        found = (_EMBEDS.fullmatch(path.name) for path in folder.glob("embeds_chunk_*.npy"))
        #: Numbers of the chunks, ascending.
        self.numbers = tuple(sorted(int(match[1]) for match in found if match))
        #: Articles passed over by `passages` so far because they have no abstract, hence a vector of their title alone.
        self.without_abstract = 0
        if not self.numbers:
            raise SourceError(f"corpus ncbi-medcpt: {folder} has no embeds_chunk_*.npy")
        for number in self.numbers:
            for path in (self._pmids_path(number), self._articles_path(number)):
                if not path.is_file():
                    raise SourceError(f"corpus ncbi-medcpt: {path} is missing, which chunk {number} needs")

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

    def passages_of(self, number: int) -> Iterator[Passage]:
        """The articles of one chunk that have an abstract, in the order of its rows.

        Raises:
            SourceError: as `chunk`, and if its articles are not those that its rows are listed for.
        """
        pmids = self.chunk(number).pmids
        path = self._articles_path(number)
        articles = _json(path, dict)
        odd = next(iter(articles.keys() ^ set(pmids)), None)
        if odd is not None:
            side = "no vector" if odd in articles else "no article"
            raise SourceError(f"chunk {number} of {self._folder} is misaligned: PMID {odd} has {side}")
        for pmid in pmids:
            passage = _passage(pmid, articles[pmid], path)
            if passage is None:
                self.without_abstract += 1
            else:
                yield passage

    def passages(self) -> Iterator[Passage]:
        """The articles of all chunks that have an abstract; `without_abstract` counts the others."""
        for number in self.numbers:
            yield from self.passages_of(number)

    def _pmids_path(self, number: int) -> Path:
        return self._folder / f"pmids_chunk_{number}.json"

    def _articles_path(self, number: int) -> Path:
        return self._folder / f"pubmed_chunk_{number}.json"


class ReadyVectors:
    """An encoder that looks passages up in the chunks, and leaves queries to the encoder that parity was proven with.

    Made for a build, which asks for passages in about the order in which `NcbiMedcptChunks.passages` gives them: one chunk
    is open at a time, and a passage that it lacks is looked for in the next ones.
    """

    def __init__(self, chunks: NcbiMedcptChunks, encoder: Encoder) -> None:
        self._chunks, self._encoder = chunks, encoder
        self._next = 0  # place of the chunk after the open one
        self._rows: dict[str, int] = {}  # of the open chunk; none is open yet
        self._vectors: NDArray[np.float32] = np.empty((0, DIM), dtype=np.float32)

    @property
    def spec(self) -> EncoderSpec:
        """The recipe of the encoder that the vectors agree with."""
        return self._encoder.spec

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """float32 [n, 768], by the encoder."""
        return self._encoder.encode_queries(queries)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """The ready vectors: float32 [n, 768].

        Raises:
            SourceError: a passage is in no chunk.
            VectorError: a vector is not finite.
        """
        vectors = np.empty((len(passages), DIM), dtype=np.float32)
        for row, passage in enumerate(passages):
            vectors[row] = self._vector(passage.id)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            bad = passages[int(np.flatnonzero(~finite)[0])]
            raise VectorError(f"ready vectors: NaN or infinity for PMID {bad.id}; leave out or encode its chunk")
        return vectors

    def _vector(self, pmid: str) -> NDArray[np.float32]:
        for _ in range(len(self._chunks.numbers) + 1):  # the open chunk, all others, and that one once more
            if pmid in self._rows:
                return self._vectors[self._rows[pmid]]  # type: ignore[no-any-return]
            self._turn_page()
        raise SourceError(f"ready vectors: PMID {pmid} is in none of the chunks {list(self._chunks.numbers)}")

    def _turn_page(self) -> None:
        """Open the next chunk in place of this one; after the last comes the first."""
        chunk = self._chunks.chunk(self._chunks.numbers[self._next])
        self._next = (self._next + 1) % len(self._chunks.numbers)
        self._vectors = chunk.vectors
        self._rows = {pmid: row for row, pmid in enumerate(chunk.pmids)}


class Parity(BaseModel):
    """How near the ready vectors of a sample are to freshly encoded ones; a record for the manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int
    pmids: Annotated[tuple[str, ...], Field(description="The sample.")]
    min_cosine: Annotated[float, Field(description="The lowest cosine of a ready vector with the fresh one.")]
    max_difference: Annotated[
        float, Field(description="The greatest length of a difference, as a fraction of the fresh vector's length.")
    ]


def prove_parity(
    chunks: NcbiMedcptChunks,
    encoder: Encoder,
    *,
    sample: int = 64,
    seed: int = 0,
    min_cosine: float = 0.999,
    max_difference: float = 0.02,
) -> Parity:
    """Encode a sample again and compare.

    Up to 4 chunks are drawn, then articles of each, all by `seed`. The tolerance is for other hardware and half precision;
    another pooling, another model or swapped rows are far outside of it.

    Raises:
        IndexMismatchError: a vector of the sample is further from the fresh one than the tolerance.
        VectorError: a ready vector is not finite.
        SourceError: a chunk that cannot be used, or no article with an abstract in those drawn.
    """
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    drawn = sorted(draw.sample(chunks.numbers, min(4, len(chunks.numbers))))
    passages: list[Passage] = []
    for place, number in enumerate(drawn):
        share = sample // len(drawn) + (place < sample % len(drawn))
        found = list(chunks.passages_of(number))
        passages += draw.sample(found, min(share, len(found)))
    if not passages:
        raise SourceError(f"ready vectors: chunks {drawn} have no article with an abstract to encode again")
    ready = ReadyVectors(chunks, encoder).encode_passages(passages).astype(np.float64)
    fresh = encoder.encode_passages(passages).astype(np.float64)
    lengths = np.linalg.norm(fresh, axis=1)
    cosines = (ready * fresh).sum(axis=1) / np.maximum(np.linalg.norm(ready, axis=1) * lengths, np.finfo(float).tiny)
    differences = np.linalg.norm(ready - fresh, axis=1) / lengths
    worst = int(np.argmax(differences))
    parity = Parity(
        seed=seed,
        pmids=tuple(passage.id for passage in passages),
        min_cosine=float(cosines.min()),
        max_difference=float(differences.max()),
    )
    if parity.min_cosine < min_cosine or parity.max_difference > max_difference:
        raise IndexMismatchError(
            f"ready vectors: not those of {encoder.spec.name}: in a sample of {len(passages)} the lowest cosine is "
            f"{parity.min_cosine:.4f} (at least {min_cosine}), the greatest difference {parity.max_difference:.4f} (at "
            f"most {max_difference}), worst PMID {passages[worst].id}; encode the passages instead"
        )
    return parity


def _passage(pmid: str, article: Any, path: Path) -> Passage | None:
    """The article as a passage; None if it has no abstract."""
    if not isinstance(article, dict) or not all(isinstance(article.get(key, ""), str) for key in "dta"):
        raise SourceError(f"{path}, PMID {pmid}: expected an object with the strings d, t and a, found {article!r:.80}")
    abstract = article.get("a", "")
    if not abstract.strip():
        return None
    year = _YEAR.match(article.get("d", ""))
    return Passage(
        id=pmid,
        title=article.get("t", ""),
        text=abstract,
        source=f"PubMed {pmid}",
        corpus=CORPUS,
        year=int(year[0]) if year else None,
    )


def _json(path: Path, kind: type) -> Any:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: not readable JSON, or cut off: {error}") from error
    if not isinstance(content, kind):
        raise SourceError(f"{path}: expected a JSON {kind.__name__}, found {type(content).__name__}")
    return content
