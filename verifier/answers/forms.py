"""How a text can name an option: by its letter, or by what the option says.

Nothing here knows which letters there are or what they mean: all patterns are made from the options at hand, and no letter is
treated otherwise than another. A letter by itself counts only where its surroundings show that it is one: "A patient" holds an
article, "E. coli" a genus, "vitamin D" neither an option.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

#: What may follow a letter that stands by itself: "B because …", "A is wrong".
_CONNECTORS = (
    r"because|since|as|for|which|and|or|nor|not|but|based|given|due|is|was|isn't|are|instead|rather|over|than|may|might"
)
#: Options that are everyday words say something only where an answer is announced, and only by themselves.
_EVERYDAY = frozenset({"yes", "no", "maybe", "true", "false", "none", "all", "both", "other", "same"})
_TIGHT = re.compile(rf"\s*(?:$|\n|[.,;:!)\]}}\"<]|-\s|(?:{_CONNECTORS})\b)", re.I)
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|\w+|[<>≤≥=+±%]")
_ARTICLES = frozenset({"a", "an", "the"})
_OPENING = re.compile(r"[\s\"'(\[]*")
_AFTER_LETTER = re.compile(r"[ ]*(?:[-:.,]\s*|\(\s*)?[\"']?")
_ENDS = re.compile(r"[\"')\]]*\s*(?:[.;,\n]|$)")
_SMALL_WORD = re.compile(r" [a-z]+\b(?! (?:is|are|was))")

_BOXED = re.compile(r"\\f?boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_STYLED = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm|it|sf)|operatorname|mbox)\s*\{([^{}]*)\}")
_ANSWER_TAG = re.compile(r"<\s*(?:final_?)?answer\s*>(.*?)(?:<\s*/\s*(?:final_?)?answer\s*>|$)", re.I | re.S)
_TAG = re.compile(r"</?(?:b|i|u|em|strong|p|br|span|div|sup|sub|think|final_?answer|answer)\b[^<>\n]*>", re.I)
_STRUCK = re.compile(r"~~[^~\n]+~~")
_MARKS = re.compile(r"[*`$]|__|(?<!\w)_|_(?!\w)|^[ \t]*(?:#+[ \t]*|>[ \t]+(?=[^\W\d]))|\\(?=[\s,;!()\[\]])", re.M)
_SPACES = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r"\n(?: ?\n)+")
_QUOTES = str.maketrans(
    dict.fromkeys("\u2018\u2019", "'") | dict.fromkeys("\u201c\u201d«»「」", '"') | dict.fromkeys("\u2013\u2014", "-")
)


def plain(text: str) -> str:
    """The text without what only decorates it: widths, zero-width characters, Markdown, LaTeX and HTML around words.

    A boxed answer and one in `<answer>` tags become lines that announce an answer.
    """
    text = unicodedata.normalize("NFKC", text)
    text = "".join(character for character in text if unicodedata.category(character) != "Cf").translate(_QUOTES)
    text = _BOXED.sub(r"\nFinal answer: \1\n", _STYLED.sub(r"\1", text))
    text = _TAG.sub("", _ANSWER_TAG.sub(r"\nFinal answer: \1\n", text))
    text = _MARKS.sub("", _STRUCK.sub("", text))
    # With short runs of space, no pattern takes long over them.
    return _BLANK_LINES.sub("\n\n", _SPACES.sub(" ", text))


@dataclass(frozen=True, slots=True)
class Named:
    """An option that is named at a place of a text."""

    key: str
    start: int
    end: int
    clash: bool = False  # the letter is followed by what another option says


@dataclass(frozen=True, slots=True)
class _Letters:
    """The patterns of one set of keys."""

    by_fold: Mapping[str, str]
    bracketed: re.Pattern[str]  # (B)
    bare: re.Pattern[str]  # B, where what follows shows that it is no word
    last: re.Pattern[str]  # b at the end of a line
    pointed: re.Pattern[str]  # option B, B)


@lru_cache(maxsize=256)
def _letters(keys: tuple[str, ...]) -> _Letters:
    def any_of(spellings: set[str]) -> str:
        return "|".join(map(re.escape, sorted(spellings, key=lambda key: (-len(key), key))))

    written, either = any_of({*keys, *map(str.upper, keys)}), any_of(set(keys))
    follow = rf"(?=\s*(?:$|[)\]}},;:!\"(/&]|'(?!\w))|\.(?!\w)|\s*\n|\s*-\s|\s(?:{_CONNECTORS})\b|\s*[^\x00-\x7f])"
    return _Letters(
        {key.casefold(): key for key in keys},
        re.compile(rf"[(\[{{]\s*(?:option |choice |answer )?({either})\s*[.:]?\s*[)\]}}]", re.I),
        re.compile(rf"({written})(?![A-Za-z0-9_]){follow}[.):\]}}]*"),
        re.compile(rf"({either})[.)]*(?=\s*(?:$|\n))", re.I),
        re.compile(rf"(?<!\w)(?:(?i:option|choice|answer)\s+({written})(?!\w)(?!')|({written})\)(?!\w))"),
    )


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
        key = letters.by_fold[found[1].casefold()]
        after = _AFTER_LETTER.match(self.text, found.end())
        said = self.said_at(after.end()) if after else None
        if said is None:
            word = found[0].endswith(".") and _SMALL_WORD.match(self.text, found.end())
            return None if word and not self._begins_with(key, found.end() + 1) else Named(key, start, found.end())
        if said.key == key:
            return Named(key, start, said.end)
        return Named(key, start, found.end(), clash=_ENDS.match(self.text, said.end) is not None)

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
                if not everyday or _TIGHT.match(self.text, self._ends[end]):
                    return Named(key, start, self._ends[end])
        return None

    def pointed(self, start: int, end: int) -> Iterator[Named]:
        """Letters in `text[start:end]` that are marked as such: "(B)", "B)", "option B"."""
        for pattern in (self._letters.bracketed, self._letters.pointed):
            for found in pattern.finditer(self.text, start, end):
                yield Named(self._letters.by_fold[found[found.lastindex or 0].casefold()], found.start(), found.end())

    def said(self, start: int, end: int) -> list[Named]:
        """Options whose text stands in `text[start:end]`, the longest where they overlap; everyday words are none."""
        found: list[Named] = []
        first, last = self._squashed_place(start), self._squashed_place(end)
        for key, saying, everyday in self._sayings:
            place = -1 if everyday else self._squashed.find(saying, first, last)
            while place >= 0:
                begin, stop = self._starts.get(place), self._ends.get(place + len(saying))
                place = self._squashed.find(saying, place + 1, last)
                if begin is None or stop is None:
                    continue
                if not any(longer.start <= begin and stop <= longer.end for longer in found):
                    found.append(Named(key, begin, stop))
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
    keys = {key.casefold() for key in options}
    telling = [
        (key, saying, saying in _EVERYDAY or len(saying) < 3)
        for key, saying in squashed.items()
        if saying and every.count(saying) == 1 and saying not in keys  # not two alike, nor "A" as the text of B
    ]
    return sorted(telling, key=lambda entry: (-len(entry[1]), entry[1]))
