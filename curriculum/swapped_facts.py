"""Claims from real passages, half of them with one fact swapped, so that the passage shows what is wrong.

A claim is a sentence of a passage. Claims come in pairs whose spots are of one group and say different things: a pair trades what
it says and becomes two wrong claims, or it stays as it is, two right ones. So every word stands as often in right claims as in
wrong ones, up to chance, and words alone do not tell them apart.

What a wrong claim says is not in its passage; that it is false everywhere is not known. Labels say what the passage says.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from curriculum.faults import Fault, Side
from curriculum.swap_rules import Spot, spots, words
from retrieval.passage import Passage

VERSION = "1"  # raised whenever the same passages give other claims
_TEST_SHARE = 20  # percent of the passages
_LOOKED_AHEAD = 300  # how far down its group a partner for a claim is sought
_SENTENCE_END = re.compile(r"(?<=[a-z)][.])\s+(?=[A-Z])")
_FEWEST_WORDS, _MOST_WORDS = 8, 35
# A sentence that begins so speaks of the one before.
_LEANS_ON = words(
    "It Its This These Those They Their Such He She His Her We Our You However But And Or Also Thus Therefore Then For In "
    "Other Another Both Each Some Most Many Here There If When"
)
_NOT_PROSE = re.compile(r"[<>:;?!\[\]|]|Figure|Table|Chapter|\bsee\b|\s-\s|\d+\.\s|https?|www")


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement, and the passage that it is from."""

    passage: Passage
    source: str  # the sentence as the passage has it
    spot: Spot  # in the source
    says: str  # what the claim has there; what the source has there if the claim is right

    @property
    def label(self) -> Literal[0, 1]:
        """1: as in the passage."""
        return 1 if self.says == self.spot.says else 0

    @property
    def text(self) -> str:
        return self.source[: self.spot.start] + self.says + self.source[self.spot.end :]

    @property
    def id(self) -> str:
        """Of what it says and where: the same in every run."""
        content = "\0".join((self.passage.corpus, self.passage.id, self.text))
        return f"claim-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def side_of(passage: Passage) -> Side:
    """Training or test, by the hash of the passage's id: one in five is for testing, whatever else is in the corpus."""
    dealt = int.from_bytes(hashlib.sha256(passage.id.encode()).digest()[:4], "big")
    return Side.TEST if dealt % 100 < _TEST_SHARE else Side.TRAIN


def sentences(text: str) -> list[str]:
    """The sentences of a text that can be understood alone: of 8 to 35 words, prose, not leaning on the one before."""
    return [
        sentence
        for sentence in _SENTENCE_END.split(" ".join(text.split()))
        if sentence[:1].isupper()
        and sentence.endswith(".")
        and _FEWEST_WORDS <= len(parts := sentence.split()) <= _MOST_WORDS
        and parts[0].rstrip(",") not in _LEANS_ON
        and not _NOT_PROSE.search(sentence)
    ]


def swapped_claims(passages: Iterable[Passage], side: Side, *, seed: int = 0, most: int | None = None) -> list[Claim]:
    """Claims of the passages of one side, at most one a passage, as many wrong as right ones, in random order.

    Sentences that stand in several passages, of either side, are left out. The same passages in the same order, side and seed
    give the same claims.

    Args:
        passages: one or several corpora; held in memory.
        most: how many claims at most, rounded down to a multiple of four; None: all that can be made.
    """
    whole = list(passages)
    found = {id(passage): sentences(passage.text) for passage in whole}
    times = Counter(sentence for lines in found.values() for sentence in set(lines))
    draw = Random(f"{VERSION} swapped facts {side} {seed}")  # noqa: S311 - a text as seed is hashed the same everywhere
    groups: dict[str, list[Claim]] = {}
    for passage in whole:
        alone = [sentence for sentence in found[id(passage)] if times[sentence] == 1]
        if side_of(passage) is side and (claim := _chosen(passage, alone, draw)):
            groups.setdefault(claim.spot.group, []).append(claim)
    pairs = [pair for group in sorted(groups) for pair in _paired(groups[group], draw)]
    if most is not None:
        pairs = draw.sample(pairs, min(len(pairs), most // 2))
    del pairs[len(pairs) // 2 * 2 :]  # as many that trade as that stay
    claims = [one for number, pair in enumerate(pairs) for one in (_traded(*pair) if number % 2 else pair)]
    return draw.sample(claims, len(claims))


def _chosen(passage: Passage, alone: Sequence[str], draw: Random) -> Claim | None:
    """One claim of a passage: the rules that find something are equally likely, then the spots of a rule."""
    by_fault: dict[Fault, list[tuple[str, Spot]]] = {}
    for sentence in alone:
        for spot in spots(sentence):
            by_fault.setdefault(spot.fault, []).append((sentence, spot))
    if not by_fault:
        return None
    sentence, spot = draw.choice(by_fault[draw.choice(sorted(by_fault))])
    return Claim(passage, sentence, spot, spot.says)


def _paired(claims: Sequence[Claim], draw: Random) -> Iterator[tuple[Claim, Claim]]:
    """Claims of one group, two by two, that can trade what they say; those without a partner are left out."""
    waiting = draw.sample(claims, len(claims))
    while waiting:
        claim = waiting.pop()
        near = range(len(waiting) - 1, max(len(waiting) - 1 - _LOOKED_AHEAD, -1), -1)
        partner = next((place for place in near if _can_trade(claim, waiting[place])), None)
        if partner is not None:
            yield claim, waiting.pop(partner)


def _can_trade(first: Claim, second: Claim) -> bool:
    """Whether each says something else, and nothing that the other's sentence says too.

    For names and numbers the other's whole passage must not hold it; opposites and "not" are everywhere.
    """
    said, other = first.spot.says, second.spot.says
    if said == other:
        return False
    if first.spot.fault is Fault.NEGATION:
        return True
    texts = [first.source, second.source]
    if first.spot.fault in (Fault.ENTITY, Fault.NUMBER):
        texts = [claim.passage.title + " " + claim.passage.text for claim in (first, second)]
    return not _holds(texts[0], other) and not _holds(texts[1], said)


def _holds(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def _traded(first: Claim, second: Claim) -> tuple[Claim, Claim]:
    return (
        Claim(first.passage, first.source, first.spot, second.spot.says),
        Claim(second.passage, second.source, second.spot, first.spot.says),
    )
