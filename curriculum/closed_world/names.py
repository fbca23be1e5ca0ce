"""Pronounceable names that nothing has: neither the real world, as far as a word list tells, nor another world."""

import hashlib
import random
from collections.abc import Collection, Iterator
from enum import StrEnum
from itertools import product

from curriculum.faults import Side
from retrieval.normalize import normalized
from retrieval.sources.shipped import starter

#: Worlds of one side share no name if their seeds differ modulo this; worlds of different sides never do.
SLOTS = 16
_SHORTEST = 7  # letters: shorter ones are words of some language more often
_TRIES = 100_000  # a look-alike has some hundred candidates, a new name millions
_ONSETS = ("b", "br", "d", "dr", "f", "g", "gl", "k", "kr", "l", "m", "n", "p", "pl", "r", "s", "t", "tr", "v", "z")
_VOWELS = ("a", "e", "i", "o", "u")
_CODAS = ("", "", "", "l", "m", "n", "r")
_LETTERS = "bdfgklmnprstvz"


class Kind(StrEnum):
    """What is named; each kind has endings of its own, so that a name tells what it is of but nothing about it."""

    DRUG = "drug"
    CLASS = "class"
    TARGET = "target"
    DISEASE = "disease"
    ANTIDOTE = "antidote"


_ENDINGS: dict[Kind, tuple[str, ...]] = {
    Kind.DRUG: ("an", "ex", "il", "or", "um"),
    Kind.CLASS: ("ates", "ides", "oids"),
    Kind.TARGET: ("trin", "kin", "din"),
    Kind.DISEASE: ("osia", "emba", "ura"),
    Kind.ANTIDOTE: ("ade", "olix", "yx"),
}


class NamesSpentError(ValueError):
    """There are no more names of the kind that is asked for."""


def words(text: str) -> frozenset[str]:
    """The words of a text, in lower case: its longest runs of letters."""
    letters = (char if char.isalpha() else " " for char in normalized(text).lower())
    return frozenset("".join(letters).split())


def real_words() -> frozenset[str]:
    """Every word of the starter corpus."""
    return frozenset().union(*(words(f"{passage.title} {passage.text}") for passage in starter()))


def belongs(name: str, side: Side, seed: int) -> bool:
    """Whether a world may use the name: names are dealt out by their hash, to the two sides and to `SLOTS` seeds of each."""
    dealt = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return dealt % 2 == (side is Side.TEST) and dealt // 2 % SLOTS == seed % SLOTS


class Namer:
    """Gives out names, each once."""

    def __init__(self, side: Side, seed: int, taken: Collection[str]) -> None:
        """Args:
        taken: words that no name may be.
        """
        self.side, self.seed = side, seed
        self._taken = set(taken)
        self._random = random.Random(f"names {side} {seed}")  # noqa: S311 - a text as seed is hashed the same everywhere

    def name(self, kind: Kind) -> str:
        """A new name: two syllables and an ending of its kind, in lower case."""
        draw = self._random
        for _ in range(_TRIES):
            syllables = (draw.choice(_ONSETS) + draw.choice(_VOWELS) + draw.choice(_CODAS) for _ in range(2))
            stem = "".join(syllables).rstrip("aeiou")  # the ending has a vowel of its own
            candidate = stem + draw.choice(_ENDINGS[kind])
            if len(candidate) >= _SHORTEST and self._take(candidate):
                return candidate
        raise NamesSpentError(f"there are no more names for a {kind}: make a smaller world")

    def look_alike(self, name: str) -> str:
        """A new name that differs from `name` in one or two letters."""
        once = sorted({changed for changed in _one_letter_away(name) if changed != name})
        self._random.shuffle(once)
        twice = (further for changed in once for further in _one_letter_away(changed) if further != name)
        for candidates in (once, twice):
            for candidate in candidates:
                if self._take(candidate):
                    return candidate
        raise NamesSpentError(f"there is no free name that looks like {name}: make a smaller world")

    def _take(self, name: str) -> bool:
        if name in self._taken or not belongs(name, self.side, self.seed):
            return False
        self._taken.add(name)
        return True


def _one_letter_away(name: str) -> Iterator[str]:
    """Names with one vowel or single consonant replaced by another; they stay pronounceable."""
    for position, letter in product(range(len(name)), _LETTERS + "aeiou"):
        same_sort = (letter in _VOWELS) == (name[position] in _VOWELS)
        if same_sort and letter != name[position] and position > 0:
            yield name[:position] + letter + name[position + 1 :]
