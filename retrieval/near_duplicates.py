"""Find texts that are almost the same, with MinHash signatures in bands.

A text is a set of 5-word shingles. A signature of 128 minima is cut into 8 bands of 16; a text is a near-duplicate if one
whole band has been seen before. Two texts that share a fraction s of their shingles meet with probability
1 - (1 - s^16)^8: .99 at s = .95, .81 at .9, .20 at .8, .002 at .6. Only the bands' fingerprints are kept (8 tables), not the
signatures, so memory is bounded and a candidate is not compared a second time.
"""

import struct
from typing import Any

from retrieval.fingerprints import Fingerprints, fingerprint
from retrieval.passage import BuildError

_SHINGLE = 5  # words
_BANDS, _ROWS = 8, 16
_SEED = 1  # of the permutations: part of what "near" means, hence fixed


class NearDuplicates:
    """Remembers texts by their bands; 11 to 21 bytes a band, hence 88 to 170 a text."""

    def __init__(self) -> None:
        """Raises BuildError if the library is missing."""
        try:
            from rensa import RMinHash
        except ImportError as error:
            raise BuildError("near_duplicates: rensa is missing; pip install 'medverify[corpora]'") from error
        self._minhash: Any = RMinHash
        self._seen = [Fingerprints() for _ in range(_BANDS)]

    def add(self, text: str) -> bool:
        """Whether no text like this one was added before; it is then added itself."""
        bands = self._bands(text)
        if any(band in seen for band, seen in zip(bands, self._seen, strict=True)):
            return False
        for band, seen in zip(bands, self._seen, strict=True):
            seen.add(band)
        return True

    def _bands(self, text: str) -> list[int]:
        """The fingerprint of each band of the text's signature."""
        words = text.lower().split()
        shingles = [" ".join(words[start : start + _SHINGLE]) for start in range(max(1, len(words) - _SHINGLE + 1))]
        minhash = self._minhash(num_perm=_BANDS * _ROWS, seed=_SEED)
        minhash.update(shingles)
        signature = struct.pack(f"<{_BANDS * _ROWS}I", *minhash.digest())
        size = len(signature) // _BANDS
        return [fingerprint(signature[start : start + size]) for start in range(0, len(signature), size)]
