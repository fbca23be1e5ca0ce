"""Seeing that no two passages of a corpus share an id, among tens of millions."""

import hashlib
from array import array
from pathlib import Path

import numpy as np

from retrieval.passage import BuildError, Passage
from retrieval.textstore import TextStore


class UniqueIds:
    """Remembers 8 bytes a passage; whether two with the same 8 bytes have the same id is looked up in the text store."""

    def __init__(self) -> None:
        self._fingerprints = array("Q")

    def add(self, passage: Passage) -> None:
        """The passage of the next row."""
        digest = hashlib.blake2b(f"{passage.corpus}\0{passage.id}".encode(), digest_size=8).digest()
        self._fingerprints.frombytes(digest)

    def check(self, folder: Path) -> None:
        """Compare the ids of all rows; `folder` holds their text store.

        Raises:
            BuildError: names the corpus and the id that occurs twice.
        """
        fingerprints = np.frombuffer(self._fingerprints, dtype=np.uint64)
        ordered = np.sort(fingerprints)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(repeated):
            return
        seen = set[tuple[str, str]]()
        with TextStore(folder) as texts:
            for passage in texts.get_many(np.flatnonzero(np.isin(fingerprints, repeated))):
                identity = passage.corpus, passage.id
                if identity in seen:
                    raise BuildError(f"corpus {passage.corpus!r} has two passages with the id {passage.id!r}")
                seen.add(identity)
