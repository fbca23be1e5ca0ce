"""A set of fingerprints that tens of millions of passages fit into.

A Python set of 24 million 16-byte digests takes about 2.5 GB. Here a fingerprint is the first 64 bits of a BLAKE2b hash
in an open-addressing table of machine words: 11 to 21 bytes a passage. Two different texts among 24 million share a
fingerprint with a probability of 2 in 100,000, for the whole corpus; among 200 million, of 1 in 1,000.
"""

from array import array
from hashlib import blake2b

_FIRST_SLOTS = 1 << 10
_FULLEST = 0.75  # of the slots; beyond this, chains of taken slots grow long


def fingerprint(content: bytes) -> int:
    """64 bits that stand for `content`; never 0, which marks a free slot."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little") or 1


class Fingerprints:
    """A growing set of fingerprints. Doubles when it is three quarters full; the old table is kept until it is copied."""

    def __init__(self) -> None:
        self._slots = _free(_FIRST_SLOTS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return len(self._slots) * self._slots.itemsize

    def add(self, value: int) -> bool:
        """Add a fingerprint; whether it is new.

        Args:
            value: from `fingerprint`, or any other hash of 64 well-mixed bits that is not 0.
        """
        slots = self._slots
        slot = _slot_of(slots, value)
        if slots[slot] == value:
            return False
        slots[slot] = value
        self._count += 1
        if self._count > _FULLEST * len(slots):
            self._grow()
        return True

    def __contains__(self, value: int) -> bool:
        return self._slots[_slot_of(self._slots, value)] == value

    def _grow(self) -> None:
        larger = _free(2 * len(self._slots))
        for value in self._slots:
            if value:
                larger[_slot_of(larger, value)] = value
        self._slots = larger


def _free(count: int) -> "array[int]":
    return array("Q", bytes(8 * count))


def _slot_of(slots: "array[int]", value: int) -> int:
    """Where the value is, or the free slot where it belongs."""
    mask = len(slots) - 1  # the length is a power of two
    slot = value & mask
    while slots[slot] not in (0, value):
        slot = (slot + 1) & mask
    return slot
