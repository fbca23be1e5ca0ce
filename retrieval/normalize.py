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
_UNSEEN = frozenset({"Cc", "Cf", "Mn", "Me"})  # controls, zero-width characters, accents that sit on a letter
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols by category, drawn as nothing
_SPACES = re.compile(r"[ \t]+")
_LINE_TAIL = re.compile(r"[ \t]+$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n{3,}")


def normalized(text: str) -> str:
    """The text in NFC, with line feeds for line ends, plain spaces, no blank ends, and no invisible characters.

    Idempotent. Runs of spaces become one where the text is a single line; where it has several they may be the level of a
    list or part of a drawing, and stay. Two or more blank lines become one.
    """
    if _is_plain(text):
        return unicodedata.normalize("NFC", text)  # quick where it is NFC already
    text = _LINE_END.sub("\n", _INVISIBLE.sub("", text))
    text = unicodedata.normalize("NFC", _SPACE.sub(" ", text))
    text = _BLANK_LINES.sub("\n\n", _LINE_TAIL.sub("", text)).strip()
    return text if "\n" in text else _SPACES.sub(" ", text)


def _is_plain(text: str) -> bool:
    """Whether there is nothing to do but NFC: true of most texts, and told at the speed of C."""
    return (
        text.replace("\n", "").isprintable()  # false for any other separator than a space, and for what is not seen
        and not any(run in text for run in ("  ", " \n", "\n\n\n"))
        and text.strip() == text
    )


def bare(text: str) -> str:
    """A normalised text with each run of spaces and line ends as one space: what two copies of a text have in common."""
    return " ".join(text.split())


def is_seen(text: str) -> bool:
    """Whether there is anything in the text but spaces and characters that are not seen."""
    return any(not (char.isspace() or char in _BLANKS or unicodedata.category(char) in _UNSEEN) for char in text)
