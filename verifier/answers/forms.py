"""How a text can name an option: by its letter, or by what the option says.

Nothing here knows which letters there are or what they mean: all patterns are made from the options at hand, and no letter is
treated otherwise than another. A letter by itself counts only where its surroundings show that it is one: "A patient" holds an
article, "E. coli" a genus, "vitamin D" neither an option.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from verifier.answers.plain import folded, plain

#: What may follow a letter that stands by itself: "B because …", "A is wrong".
_CONNECTORS = (
    r"because|since|as|for|which|and|or|nor|not|but|based|given|due|is|was|isn't|are|instead|rather|over|than|may|might|to"
    r"|porque|parce|weil|denn|perché|omdat|потому|так как|ist|est|es|è|é"
)
#: Scripts without spaces between words.
_CJK = r"\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af"
#: What may follow a key of such a script at once; anything else makes it the beginning of a word.
_CJK_TAIL = r"(?:项|項|選項|选项|番|号|号|です|だ|が|は|で|를|입니다|이다|이며|번)"
#: Options that are everyday words say something only where an answer is announced, and only by themselves.
_EVERYDAY = frozenset({"yes", "no", "maybe", "true", "false", "none", "all", "both", "other", "same"})
_TIGHT = re.compile(rf"\s*(?:$|\n|[.,;:!)\]}}\"<]|-\s|(?:{_CONNECTORS})\b)", re.I)
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|\w+|[<>≤≥=+±%]")
_ARTICLES = frozenset({"a", "an", "the"})
#: Signs that belong to the letter before them: accents, vowel signs.
_MARKS = "".join(char for code in range(0x300, 0x1200) if unicodedata.category(char := chr(code)).startswith("M"))
_OPENING = re.compile(r"[\s\"'(\[]*")
_AFTER_LETTER = re.compile(r"[ ]*(?:[-:.,]\s*|\(\s*)?[\"']?")
_LAST_WORD = re.compile(r"(\w+|[<>≤≥=+±%])[^\w<>≤≥=+±%]*$")
_ENDS = re.compile(r"[\"')\]]*\s*(?:[.;,\n]|$)")
#: What makes an option's text a part of another word: "heparin-induced".
_COMPOUND = re.compile(
    r"-(?:induced|associated|related|dependent|resistant|sensitive|exacerbated|mediated|like|free|negative|positive|based"
    r"|deficient|producing|containing|releasing|blocking|derived|specific|sided|naive|refractory|binding|sparing)\b",
    re.I,
)
_SMALL_WORD = re.compile(r" [a-z]+\b(?! (?:is|are|was))")


class How(Enum):
    """By what an option is named."""

    LETTER = auto()
    TEXT = auto()
    BOTH = auto()


@dataclass(frozen=True, slots=True)
class Named:
    """An option that is named at a place of a text."""

    key: str
    start: int
    end: int
    how: How
    clash: bool = False  # the letter is followed by what another option says


@dataclass(frozen=True, slots=True)
class _Letters:
    """The patterns of one set of keys."""

    exact: Mapping[str, str]  # from a folded key to the key
    by_case: Mapping[str, str]  # the same without case, where that leaves no doubt
    bracketed: re.Pattern[str]  # (B)
    bare: re.Pattern[str]  # B, where what follows shows that it is no word
    last: re.Pattern[str]  # b at the end of a line
    pointed: re.Pattern[str]  # option B, B)

    def key(self, spelling: str) -> str | None:
        """The key that is spelled so; None where two keys differ in case alone and this is neither."""
        return self.exact.get(spelling) or self.by_case.get(spelling.casefold())


@lru_cache(maxsize=256)
def _letters(keys: tuple[str, ...]) -> _Letters:
    exact, by_case = _unique(keys, folded), _unique(keys, lambda key: folded(key).casefold())
    spellings = {spelling for key in keys if (spelling := folded(key).strip())}

    def any_of(of: set[str]) -> str:
        return "|".join(re.escape(key) + _whole(key) for key in sorted(of, key=lambda key: (-len(key), key))) or r"(?!)"

    written, either = any_of({*spellings, *map(str.upper, spellings)}), any_of(spellings)
    follow = (
        rf"(?=\s*(?:$|[)\]}},;:!\"(/&|<]|'(?!\w))|\.(?!\w)|\s*\n|\s*-\s|\s(?:{_CONNECTORS})\b"
        rf"|\s*(?:[^\x00-\x7f\w]|[{_CJK}]))"
    )
    return _Letters(
        exact,
        by_case,
        re.compile(rf"[(\[{{]\s*(?:option |choice |answer )?({either})\s*[.:]?\s*[)\]}}]", re.I),
        re.compile(rf"({written}){follow}[.):\]}}]*"),
        re.compile(rf"({either})[.)]*(?=\s*(?:$|\n))", re.I),
        re.compile(rf"(?<!\w)(?:(?i:option|choice|answer)\s+({written})(?!')|({written})\)(?!\w))"),
    )


def _whole(key: str) -> str:
    """What makes sure that a key is not the beginning of a word of its own script."""
    if re.fullmatch(rf".*[{_CJK}]", key):
        return rf"(?=(?!\w)|{_CJK_TAIL})"
    return rf"(?![^\W{_CJK}]|[{_MARKS}])"


def _unique(keys: tuple[str, ...], fold: Callable[[str], str]) -> dict[str, str]:
    """From what a key becomes to the key; left out where two become the same."""
    by_fold = dict[str, list[str]]()
    for key in keys:
        by_fold.setdefault(fold(key), []).append(key)
    return {fold: same[0] for fold, same in by_fold.items() if len(same) == 1}


class Marked:
    """A text in which options are looked for. Positions are those of `text`."""

    def __init__(self, text: str, options: Mapping[str, str]) -> None:
        """Prepare `text`, which `plain` has made plain."""
        self.text = text
        self._letters = _letters(tuple(options))
        self._sayings = _sayings(options)
        # What is compared are tokens without what stands between them, so that "frame-shift" is "Frame shift".
        squashed: list[str] = []
        self._begins: dict[int, int] = {}  # where a token begins in `text`, and where in the squashed text
        self._starts: dict[int, int] = {}  # the other way round
        self._ends: dict[int, int] = {}  # where a token ends in the squashed text, and where in `text`
        self._next: dict[int, int] = {}  # where a token begins and where it ends, both in the squashed text
        size = 0
        for token in _TOKEN.finditer(text):
            folded = token[0].casefold()
            self._begins[token.start()], self._starts[size] = size, token.start()
            self._next[size] = size + len(folded)
            size += len(folded)
            self._ends[size] = token.end()
            squashed.append(folded)
        self._squashed = "".join(squashed)
        self._tokens = list(self._begins)

    def at(self, start: int) -> Named | None:
        """The option that is named exactly here, by what it says if that is longer than a letter."""
        letter, said = self.letter_at(start), self.said_at(start)
        return said if said and (letter is None or said.end > letter.end) else letter

    def letter_at(self, start: int) -> Named | None:
        """The option whose letter stands here, taken together with its text where that follows."""
        if start and self.text[start - 1].isascii() and self.text[start - 1].isalnum():
            return None
        letters = self._letters
        patterns = (letters.bracketed, letters.bare, letters.last)
        found = next((match for pattern in patterns if (match := pattern.match(self.text, start))), None)
        if found is None:
            return None
        key = letters.key(found[1])
        if key is None:
            return None
        after = _AFTER_LETTER.match(self.text, found.end())
        said = self.said_at(after.end()) if after else None
        if said is None:
            word = found[0].endswith(".") and _SMALL_WORD.match(self.text, found.end())
            return (
                None
                if word and not self._begins_with(key, found.end() + 1)
                else Named(key, start, found.end(), How.LETTER)
            )
        if said.key == key:
            return Named(key, start, said.end, How.BOTH)
        return Named(key, start, found.end(), How.LETTER, clash=_ENDS.match(self.text, said.end) is not None)

    def said_at(self, start: int) -> Named | None:
        """The option whose whole text stands here, an article before it or not."""
        opening = _OPENING.match(self.text, start)
        first = self._begins.get(opening.end() if opening else start)
        if first is None:
            return None
        for place in (first, self._after_article(first)):
            for key, saying, everyday in self._sayings:
                end = place + len(saying)
                if not self._squashed.startswith(saying, place) or end not in self._ends:
                    continue
                if _COMPOUND.match(self.text, self._ends[end]):
                    continue
                if not everyday or _TIGHT.match(self.text, self._ends[end]):
                    return Named(key, start, self._ends[end], How.TEXT)
        return None

    def may_end_at(self, end: int) -> bool:
        """Whether the word before `end` ends a key or what an option says: a quick look before a thorough one."""
        word = _LAST_WORD.search(self.text, max(0, end - 80), end)
        if word is None:
            return False
        folded_word = word[1].casefold()
        return self._letters.key(word[1]) is not None or any(said.endswith(folded_word) for _, said, _ in self._sayings)

    def pointed(self, start: int, end: int) -> Iterator[Named]:
        """Letters in `text[start:end]` that are marked as such: "(B)", "B)", "option B"."""
        for pattern in (self._letters.bracketed, self._letters.pointed):
            for found in pattern.finditer(self.text, start, end):
                if key := self._letters.key(found[found.lastindex or 0]):
                    yield Named(key, found.start(), found.end(), How.LETTER)

    def said(self, start: int, end: int) -> list[Named]:
        """Options whose text stands in `text[start:end]`, the longest where they overlap; everyday words are none."""
        found: list[Named] = []
        first, last = self._squashed_place(start), self._squashed_place(end)
        for key, saying, everyday in self._sayings:
            place = -1 if everyday else self._squashed.find(saying, first, last)
            while place >= 0:
                begin, stop = self._starts.get(place), self._ends.get(place + len(saying))
                place = self._squashed.find(saying, place + 1, last)
                if begin is None or stop is None or _COMPOUND.match(self.text, stop):
                    continue
                if not any(longer.start <= begin and stop <= longer.end for longer in found):
                    found.append(Named(key, begin, stop, How.TEXT))
        return sorted(found, key=lambda named: named.start)

    def _squashed_place(self, start: int) -> int:
        """Where the first token that begins at `start` or later begins in the squashed text."""
        index = bisect_left(self._tokens, start)
        return self._begins[self._tokens[index]] if index < len(self._tokens) else len(self._squashed)

    def _after_article(self, place: int) -> int:
        """Where the next token begins if the one at `place` is an article, else `place`."""
        following = self._next.get(place, place)
        if self._squashed[place:following] not in _ARTICLES or following not in self._starts:
            return place
        between = self.text[self._ends[following] : self._starts[following]]
        return following if between.isspace() else place  # not in "A. Warfarin"

    def _begins_with(self, key: str, start: int) -> bool:
        """Whether the option's text begins with the word that stands here."""
        first = self._begins.get(start)
        if first is None:
            return False
        first = self._after_article(first)
        word = self._squashed[first : self._next.get(first, first)]
        return any(one == key and saying.startswith(word) for one, saying, _ in self._sayings)


def _sayings(options: Mapping[str, str]) -> list[tuple[str, str, bool]]:
    """Key, squashed text, and whether it is an everyday word, longest first; what says nothing by itself is left out."""
    squashed = {key: "".join(_TOKEN.findall(plain(text).casefold())) for key, text in options.items()}
    every = list(squashed.values())
    keys = {folded(key).casefold() for key in options}
    telling = [
        (key, saying, saying in _EVERYDAY or len(saying) < 3)
        for key, saying in squashed.items()
        if saying and every.count(saying) == 1 and saying not in keys  # not two alike, nor "A" as the text of B
    ]
    return sorted(telling, key=lambda entry: (-len(entry[1]), entry[1]))
