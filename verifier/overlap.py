"""Which questions of a benchmark are in a training pool too, word for word or nearly.

Texts are compared without case, punctuation and spacing. Two questions are near each other by the Jaccard similarity of their
sets of five-character pieces. MinHash signatures in bands propose pairs, and every proposed pair is then compared exactly, so
that the similarity that is reported is not an estimate. The bands are loose: a pair at .7 is proposed with probability .9998,
at .6 .99, at .5 .87. (The filter of corpora in `retrieval.near_duplicates` answers another question: whether a passage is all
but a copy of some earlier one, in bounded memory and without telling of which.)

Short questions share their wording without sharing their subject ("Which of the following is true of …"), so a pair also tells
whether the right answers are the same: pairs with the same answer are leaks, others are mostly questions of one mould.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from verifier.packs import QuestionRow

_PIECE = 5  # characters
_BANDS, _PERMUTATIONS = 32, 128
_SEED = 1  # of the permutations: same pairs in every run
_LOOSEST = 0.5  # below this the bands propose too few pairs to speak of

_WORDS = re.compile(r"[^\w<>≤≥=+±%]+")


class OverlapError(ValueError):
    """What was asked for cannot be answered; the message says why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A question of the benchmark and one of the pool that are the same or nearly."""

    question: str  # id in the benchmark
    pooled: str  # id in the pool
    kind: Literal["exact", "near"]
    similarity: float  # 0 to 1; 1 if exact
    same_answer: bool  # the right answers have the same text


def find_overlap(questions: Sequence[QuestionRow], pool: Sequence[QuestionRow], threshold: float = 0.8) -> list[Pair]:
    """All pairs whose similarity reaches the threshold, in the benchmark's order, the most similar first.

    Args:
        questions: of the benchmark; what the question asks is compared, not its context and options.
        pool: what a model may have been trained on.
        threshold: .5 to 1; 1 finds what is the same word for word.

    Raises:
        OverlapError: another threshold, or the library is missing.
    """
    if not _LOOSEST <= threshold <= 1:
        raise OverlapError(f"the threshold is {threshold}; expected {_LOOSEST} to 1")
    try:
        from rensa import RMinHash, RMinHashLSH
    except ImportError as error:
        raise OverlapError("rensa is missing; pip install 'medverify[corpora]'") from error

    def signature(pieces: frozenset[str]) -> object:
        minhash = RMinHash(num_perm=_PERMUTATIONS, seed=_SEED)
        minhash.update(sorted(pieces))
        return minhash

    pooled = [_Compared.of(row) for row in pool]
    bands = RMinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS, num_bands=_BANDS)
    for number, one in enumerate(pooled):
        bands.insert(number, signature(one.pieces))
    pairs = []
    for asked in map(_Compared.of, questions):
        near = [asked.pair(pooled[number]) for number in sorted(bands.query(signature(asked.pieces)))]
        pairs += sorted((pair for pair in near if pair.similarity >= threshold), key=lambda pair: -pair.similarity)
    return pairs


@dataclass(frozen=True, slots=True)
class _Compared:
    id: str
    text: str
    pieces: frozenset[str]
    answer: str

    @classmethod
    def of(cls, row: QuestionRow) -> "_Compared":
        text = _bare(row.question)
        pieces = frozenset(text[start : start + _PIECE] for start in range(max(1, len(text) - _PIECE + 1)))
        return cls(row.id, text, pieces, _bare((row.options or {}).get(row.answer or "", row.answer or "")))

    def pair(self, other: "_Compared") -> Pair:
        shared = len(self.pieces & other.pieces)
        similarity = shared / (len(self.pieces) + len(other.pieces) - shared)
        same = self.text == other.text
        # Texts that repeat themselves may share all pieces and still differ: the kind is told by the texts.
        return Pair(self.id, other.id, "exact" if same else "near", similarity, self.answer == other.answer != "")


def _bare(text: str) -> str:
    return " ".join(_WORDS.split(unicodedata.normalize("NFKC", text).casefold())).strip()
