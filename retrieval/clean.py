"""Which passages are worth indexing, and how many were left out for what.

Passages come in one at a time and leave normalised, in their order. What is remembered of each is a fingerprint of its id
and one of its text: about 22 to 43 bytes together, 0.55 GB for 24 million.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, get_args

from pydantic import BaseModel, ConfigDict, Field

from retrieval.fingerprints import Fingerprints, fingerprint
from retrieval.language import is_english
from retrieval.near_duplicates import NearDuplicates
from retrieval.normalize import bare, normalized
from retrieval.passage import BuildError, Flag, Passage

#: Why a passage is left out. The first that applies counts.
REASONS: tuple[str, ...] = ("empty", *get_args(Flag), "not_english", "too_short", "duplicate", "near_duplicate")


class CleaningOptions(BaseModel):
    """What is left out of an index; part of its manifest. Empty and duplicate passages always are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_characters: Annotated[
        int,
        Field(ge=0, description="Shorter texts are left out: headings and captions that were cut off from their text."),
    ] = 120
    english_only: Annotated[
        bool, Field(description="Leave out texts declared, or else plainly written, in another language.")
    ] = True
    drop_flags: Annotated[tuple[Flag, ...], Field(description="Leave out passages with one of these flags.")] = (
        "retracted",
        "withdrawn",
    )
    near_duplicates: Annotated[
        bool, Field(description="Leave out texts that nearly repeat an earlier one (MinHash over 5-word shingles).")
    ] = False


#: For sets that others have cleaned, or that judgments refer to: only empty and duplicate passages are left out.
KEEP_ALL = CleaningOptions(min_characters=0, english_only=False, drop_flags=())


def likeness(text: str) -> str:
    """What two texts have in common that count as one; empty: there is nothing to see."""
    return bare(normalized(text))


class Cleaner:
    """Cleans one corpus, or several as one. Not for reuse: it remembers what it has seen."""

    def __init__(self, options: CleaningOptions | None = None) -> None:
        """Raises BuildError if near-duplicates are asked for and the library for them is missing."""
        self.options = options or CleaningOptions()
        #: Passages left out so far, for every reason there is.
        self.counts: dict[str, int] = dict.fromkeys(REASONS, 0)
        self._ids, self._texts = Fingerprints(), Fingerprints()
        self._near = NearDuplicates() if self.options.near_duplicates else None

    def kept(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """The passages worth indexing, normalised, in their order. Of equal texts the first one stays.

        Raises:
            BuildError: two passages of one corpus share an id, whether kept or not.
        """
        for passage in passages:
            if not self._ids.add(fingerprint(f"{passage.corpus}\0{passage.id}".encode())):
                raise BuildError(f"corpus {passage.corpus!r} has two passages with the id {passage.id!r}")
            text = normalized(passage.text)
            reason = self._reason(passage, text)
            if reason:
                self.counts[reason] += 1
            else:
                yield _with(passage, text)

    def _unfit(self, passage: Passage, text: str) -> str | None:
        """What is wrong with the passage by itself."""
        if not text:
            return "empty"
        for flag in self.options.drop_flags:
            if flag in passage.flags:
                return flag
        if self.options.english_only and not is_english(text, passage.language):
            return "not_english"
        return "too_short" if len(text) < self.options.min_characters else None

    def _reason(self, passage: Passage, text: str) -> str | None:
        """Why to leave the passage out; `text` is its normalised text. A kept text is remembered, another is not."""
        unfit = self._unfit(passage, text)
        if unfit:
            return unfit
        words = bare(text)  # the `likeness` of a text that is normalised already
        if not self._texts.add(fingerprint(words.encode())):
            return "duplicate"
        if self._near and not self._near.add(words):
            return "near_duplicate"
        return None


def _with(passage: Passage, text: str) -> Passage:
    """The passage with its normalised text and a title on one line; the same object if that changes nothing."""
    title = bare(normalized(passage.title))
    if (title, text) == (passage.title, passage.text):
        return passage
    return passage.model_copy(update={"title": title, "text": text})
