"""Bring text into one form without changing what it says.

Only what cannot carry meaning is touched: canonically equivalent code points, line ends, kinds of space, characters that
are not seen. Superscripts, subscripts, Greek letters, dashes and ligatures stay as they are (NFC, never NFKC: that would
turn 10⁶ into 106).
"""

import re
import unicodedata

_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")  # soft hyphen, zero-width space, word joiner, byte order mark
_LINE_END = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
# A control character becomes a space and not nothing: where one stands for a dash, two numbers must not become one.
_SPACE = re.compile("[\0-\\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_SPACES = re.compile(r"(?<=\S)[ \t]+")  # those that open a line may be the level of a list, and stay
_LINE_TAIL = re.compile(r"[ \t]+$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n{3,}")
# What a text must have for any of the above to matter; most have none of it.
_UNUSUAL = re.compile(
    "[\0-\\x08\t\v-\x1f\x7f-\u00a0\u00ad\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
    r"|  |[ ]\n|\n[ ]*\n[ ]*\n|^\s|\s\Z"
)


def normalized(text: str) -> str:
    """The text in NFC, with line feeds for line ends, plain single spaces, no blank ends, and no invisible characters.

    Idempotent. Lines keep their indentation; two or more blank lines become one.
    """
    if not _UNUSUAL.search(text):
        return unicodedata.normalize("NFC", text)  # quick where it is NFC already
    text = _LINE_END.sub("\n", _INVISIBLE.sub("", text))
    text = unicodedata.normalize("NFC", _SPACE.sub(" ", text))
    text = _LINE_TAIL.sub("", _SPACES.sub(" ", text))
    return _BLANK_LINES.sub("\n\n", text).strip()


def bare(text: str) -> str:
    """A normalised text with each run of spaces and line ends as one space: what two copies of a text have in common."""
    return " ".join(text.split())
