"""What an index holds and what a search returns."""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

#: What a publisher or a library has declared about a passage's article. A closed list: a filter on a misspelt flag would
#: let everything through.
Flag = Literal["retracted", "withdrawn", "expression_of_concern", "retraction_notice"]


class Passage(BaseModel):
    """One retrievable piece of text with its provenance."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, Field(min_length=1, description="Stable identifier, unique within its corpus.")]
    title: Annotated[str, Field(description="Short heading; may be empty.")] = ""
    text: Annotated[str, Field(min_length=1, description="The passage itself.")]
    topic: Annotated[str, Field(description="Subject area, for people who browse.")] = ""
    source: Annotated[str, Field(description="Public source where the facts can be checked.")] = ""
    corpus: Annotated[str, Field(description="Name of the corpus that the passage belongs to.")] = ""
    # For filters and licences; a judge is never shown these.
    license: Annotated[str, Field(description="Licence or copyright notice of the text; empty: not declared.")] = ""
    language: Annotated[
        str, Field(description="Declared language of the text, as an ISO 639 code (en, eng); empty: not declared.")
    ] = ""
    year: Annotated[int | None, Field(description="Year of publication; null: not declared.")] = None
    flags: Annotated[tuple[Flag, ...], Field(description="What has been declared about the article.")] = ()


class Hit(BaseModel):
    """A passage found by a search."""

    model_config = ConfigDict(frozen=True)

    passage: Passage
    score: Annotated[float, Field(description="Similarity under the index's metric; higher is closer.")]
    rank: Annotated[int, Field(ge=1, description="1 for the best hit.")]


class RetrievalError(Exception):
    """A search or an index that cannot do what was asked; the message names the fix. Never made an empty result."""


class QueryError(RetrievalError):
    """The query itself is unusable: empty, not text, too long, or asking for fewer than one hit."""


class IndexMismatchError(RetrievalError):
    """The index was built with another encoder, pooling, query length or corpus than it is being used with."""


class IndexCorruptError(RetrievalError):
    """A file of the index is missing, truncated or does not match its checksum."""


class SourceError(RetrievalError):
    """A corpus cannot be read; the message names the file, the line and the field."""


class BuildError(RetrievalError):
    """An index cannot be built; the target is as it was."""


class BusyError(BuildError):
    """Another process is building the same index."""


class UnfinishedError(BuildError):
    """An unfinished build of something else is in the way: it has to be finished, or thrown away with a fresh start."""


class ShardsMissingError(BuildError):
    """An index cannot be put together yet: vectors have still to be computed; the message names the shards."""


class EncoderError(RetrievalError):
    """An encoder cannot be loaded, or gave vectors that are not finite or have the wrong shape."""


class VectorError(RetrievalError):
    """Vectors handed to an index have the wrong shape or type, or are not finite."""


class BackendError(RetrievalError):
    """A search back end cannot run here: unknown, without its device, or too little memory on it."""


class RowError(RetrievalError):
    """A row that the index does not have, -1 included: rows never wrap around."""


class OverloadedError(RetrievalError):
    """More is asked than can be done soon; nothing was begun. Come back after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type[Self], tuple[str, float]]:
        """It may have to cross to another process."""
        return type(self), (str(self), self.retry_after_s)


class DeadlineError(RetrievalError):
    """The answer was not there when its caller's deadline passed."""


class UnavailableError(RetrievalError):
    """Nobody is there to search: the retriever was closed, or its server cannot be reached or is not ready."""


class PartialAnswerError(UnavailableError):
    """Some rows of the index could not be searched. What the others gave is no answer, but a caller may ask to see it."""

    def __init__(self, message: str, missing: Sequence[tuple[int, int]], hits: "Sequence[Sequence[Hit]]") -> None:
        """Args:
        missing: the rows that were not searched, as ranges `start` up to and without `stop`.
        hits: for each query, the best of the rows that were; may be empty.
        """
        super().__init__(message)
        self.missing = tuple(missing)
        self.hits = hits

    def __reduce__(self) -> tuple[type[Self], tuple[str, Sequence[tuple[int, int]], "Sequence[Sequence[Hit]]"]]:
        """It may have to cross to another process."""
        return type(self), (str(self), self.missing, self.hits)


class FaissInstallError(RetrievalError):
    """FAISS is missing, or several of its distributions have overwritten one another; the message names the command."""


class Retriever(Protocol):
    """Where a judge looks things up: an index in this process or a server elsewhere."""

    @property
    def digest(self) -> str:
        """SHA-256 over the manifest: same digest, same answers. Part of every `judge_id`."""
        ...

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the best hits, best first; equal scores are ordered by row.

        Of exact vectors, `min(k, passages in the index)`. A profile that goes by shared words gives fewer where it finds no
        more, and one that orders a limited number of candidates never more than these (`docs/retrieval-profiles.md`).

        Raises:
            QueryError: the query is empty, not a string or too long.
            RetrievalError: anything else that keeps a true answer from being given.
        """
        ...

    async def aclose(self) -> None: ...
