"""Which passages are worth indexing."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol

from pydantic import BaseModel

from retrieval.passage import Passage


class Cleaner(Protocol):
    """Passes on the passages that are worth indexing, in their order and under their ids, and counts the others."""

    @property
    def options(self) -> BaseModel: ...

    @property
    def counts(self) -> dict[str, int]:
        """Dropped passages per reason; every reason is there from the start."""
        ...

    def kept(self, passages: Iterable[Passage]) -> Iterator[Passage]: ...


class NoOptions(BaseModel):
    """There is nothing to choose."""


class FirstOfEachText:
    """Drops passages without text, and those whose text already occurred."""

    def __init__(self) -> None:
        self.options = NoOptions()
        self.counts = {"empty": 0, "duplicate": 0}

    def kept(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        seen = set[bytes]()
        for passage in passages:
            text = hashlib.blake2b(passage.text.encode(), digest_size=16).digest()
            if not passage.text.strip():
                self.counts["empty"] += 1
            elif text in seen:
                self.counts["duplicate"] += 1
            else:
                seen.add(text)
                yield passage
