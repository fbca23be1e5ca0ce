"""How a text can name an option: by its letter, or by what the option says.

Nothing here knows which letters there are or what they mean: all patterns are made from the options at hand, and no letter is
treated otherwise than another. A letter by itself counts only where its surroundings show that it is one: "A patient" holds an
article, "E. coli" a genus, "vitamin D" neither an option.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

#: What may follow a letter that stands by itself: "B because …", "A is wrong".
_CONNECTORS = r"because|since|as|for|which|and|or|not|but|based|given|due|is|was|isn't|are|instead|rather|over|than|may|might"
#: Options that are everyday words say something only where an answer is announced, and only by themselves.
_EVERYDAY = frozenset({"yes", "no", "maybe", "true", "false", "none", "all", "both", "other", "same"})
_TIGHT = rf"(?=\s*(?:$|\n|[.,;:!)\]}}\"<]|-\s|(?:{_CONNECTORS})\b))"
_TOKEN = re.compile(r"\w+|[<>≤≥=+±%]")
_BETWEEN = r"[^\w<>≤≥=+±%\n]*"

_BOXED = re.compile(r"\\f?boxed\s*\{\s*((?:[^{}]|\{[^{}]*\})*?)\s*\}")
_STYLED = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm|it|sf)|operatorname|mbox)\s*\{([^{}]*)\}")
_ANSWER_TAG = re.compile(r"<\s*(?:final_?)?answer\s*>\s*(.*?)\s*(?:<\s*/\s*(?:final_?)?answer\s*>|$)", re.I | re.S)
_TAG = re.compile(r"</?(?:b|i|u|em|strong|p|br|span|div|sup|sub|think|final_?answer|answer)\b[^<>\n]*>", re.I)
_STRUCK = re.compile(r"~~[^~\n]+~~")
_MARKS = re.compile(r"[*`$]|__|(?<!\w)_|_(?!\w)|^[ \t]*(?:#+|>)[ \t]*|\\(?=[\s,;!()\[\]])", re.M)
_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "«": '"', "»": '"', "「": '"', "」": '"', "–": "-", "—": "-"})


def plain(text: str) -> str:
    """The text without what only decorates it: widths, zero-width characters, Markdown, LaTeX and HTML around words.

    A boxed answer and one in `<answer>` tags become lines that announce an answer.
    """
    text = unicodedata.normalize("NFKC", text)
    text = "".join(character for character in text if unicodedata.category(character) != "Cf").translate(_QUOTES)
    text = _BOXED.sub(r"\nFinal answer: \1\n", _STYLED.sub(r"\1", text))
    text = _TAG.sub("", _ANSWER_TAG.sub(r"\nFinal answer: \1\n", text))
    text = _MARKS.sub("", _STRUCK.sub("", text))
    return re.sub(r"[^\S\n]+", " ", text)


@dataclass(frozen=True, slots=True)
class Named:
    """An option that is named at a place of a text."""

    key: str
    start: int
    end: int
    clash: bool = False  # the letter is followed by what another option says


class Forms:
    """The patterns of one set of options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._by_fold = {key.casefold(): key for key in options}
        keys = "|".join(re.escape(key) for key in sorted(options, key=lambda key: (-len(key), key)))
        self._bracketed = re.compile(rf"[(\[{{]\s*(?:option |choice |answer )?({keys})\s*[.:]?\s*[)\]}}]", re.I)
        follow = (
            rf"(?=\s*(?:$|[)\]}},;:!\"(/&]|'(?!\w))|\.(?!\w)|\s*\n|\s*-\s|\s(?:{_CONNECTORS})\b|\s*[^\x00-\x7f])"
        )
        folded = "|".join(re.escape(key) for key in sorted({*options, *map(str.upper, options)}, key=lambda k: (-len(k), k)))
        self._bare = re.compile(rf"({folded})(?!\w){follow}[.):\]}}]*")
        self._lower = re.compile(rf"({keys})[.)]*(?=\s*(?:$|\n))", re.I)
        self._pointed = re.compile(rf"(?<!\w)(?:(?:option|choice)s?\s+({folded})(?!\w)(?!')|({folded})\)(?!\w))", re.I)
        self._texts = _text_patterns(options)
        alternatives = "|".join(f"(?P<o{number}>{pattern})" for number, (_, pattern, _) in enumerate(self._texts))
        self._text = re.compile(rf"(?:(?:an?|the)\s+)?(?:{alternatives})" if alternatives else r"(?!)", re.I)
        self._keys = [key for key, _, _ in self._texts]
        self._tight = re.compile(_TIGHT, re.I)

    def at(self, text: str, start: int) -> Named | None:
        """The option that is named exactly here, by what it says if that is longer than a letter."""
        letter, said = self.letter_at(text, start), self.text_at(text, start)
        return said if said and (letter is None or said.end > letter.end) else letter

    def letter_at(self, text: str, start: int) -> Named | None:
        """The option whose letter stands here, taken together with its text where that follows."""
        if start and text[start - 1].isalnum():
            return None
        found = self._bracketed.match(text, start) or self._bare.match(text, start) or self._lower.match(text, start)
        if found is None:
            return None
        key = self._by_fold[found[1].casefold()]
        after = re.compile(r"[ ]*(?:[-:.,]\s*|\(\s*)?[\"']?").match(text, found.end())
        follows = self.text_at(text, after.end()) if after else None
        if follows is None:
            genus = found[0].endswith(".") and re.compile(r" [a-z]+\b(?! (?:is|are|was))").match(text, found.end())
            return None if genus and not self._begins(key, text, found.end()) else Named(key, start, found.end())
        if follows.key == key:
            return Named(key, start, follows.end)
        clash = re.compile(r"[\"']?\s*(?:[.;,)\n]|$)").match(text, follows.end) is not None
        return Named(key, start, found.end(), clash)

    def text_at(self, text: str, start: int) -> Named | None:
        """The option whose whole text stands here."""
        if start and text[start - 1].isalnum():
            return None
        found = self._text.match(text, start)
        if found is None or not found.lastgroup:
            return None
        key, _, everyday = self._texts[int(found.lastgroup[1:])]
        if everyday and not self._tight.match(text, found.end()):
            return None
        return Named(key, start, found.end())

    def pointed(self, text: str, start: int, end: int) -> Iterator[Named]:
        """Letters in `text[start:end]` that are marked as such: "(B)", "B)", "option B"."""
        for pattern in (self._bracketed, self._pointed):
            for found in pattern.finditer(text, start, end):
                key = self._by_fold[next(filter(None, found.groups())).casefold()]
                yield Named(key, found.start(), found.end())

    def said(self, text: str, start: int, end: int) -> Iterator[Named]:
        """Options whose text stands in `text[start:end]`, the longest where they overlap; everyday words are none."""
        for found in self._text.finditer(text, start, end):
            key, _, everyday = self._texts[int((found.lastgroup or "o0")[1:])]
            if not everyday:
                yield Named(key, found.start(), found.end())

    def _begins(self, key: str, text: str, start: int) -> bool:
        """Whether the option's first word stands here."""
        first = next((pattern.split(_BETWEEN)[0] for k, pattern, _ in self._texts if k == key), None)
        return first is not None and re.compile(rf" (?:(?:an?|the) )?{first}", re.I).match(text, start) is not None


def _text_patterns(options: Mapping[str, str]) -> list[tuple[str, str, bool]]:
    """Key, pattern and whether it is an everyday word, longest first; texts that say nothing by themselves are left out."""
    tokens = {key: tuple(_TOKEN.findall(plain(text).casefold())) for key, text in options.items()}
    keys = {key.casefold() for key in options}
    counts: dict[tuple[str, ...], int] = {}
    for words in tokens.values():
        counts[words] = counts.get(words, 0) + 1
    found = []
    for key, words in tokens.items():
        joined = "".join(words)
        if not words or counts[words] > 1 or joined in keys:  # two options alike, or "A" as the text of B
            continue
        pattern = rf"(?<![\w])(?<!\d[.,]){_BETWEEN.join(map(re.escape, words))}(?![\w])(?![.,]\d)"
        found.append((key, pattern, joined in _EVERYDAY or len(joined) < 3))
    return sorted(found, key=lambda entry: (-len(entry[1]), entry[1]))


@lru_cache(maxsize=512)
def _forms(options: tuple[tuple[str, str], ...]) -> Forms:
    return Forms(dict(options))


def forms_of(options: Mapping[str, str]) -> Forms:
    """The patterns of these options; made once for all traces of a question."""
    return _forms(tuple(options.items()))
