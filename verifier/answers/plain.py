"""A text without what only decorates it, so that a letter is a letter in whatever width, script or markup it was written."""

import re
import unicodedata

#: Drawn as nothing or as a blank, although Unicode calls them letters or symbols; the last turns a sign into a pictogram.
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0\u20e3")
#: What a stroke through a letter makes of it: nothing, as `~~B~~` is nothing.
_STRUCK_LETTER = re.compile(r"[^\s][\u0335-\u0338]")
_QUOTES = str.maketrans(
    dict.fromkeys("\u2018\u2019", "'") | dict.fromkeys("\u201c\u201d«»「」", '"') | dict.fromkeys("\u2013\u2014", "-")
)


class _Unseen(dict[int, int | None]):
    """Code points that take no room, mapped to nothing: zero-width characters, controls, direction marks, variation selectors."""

    def __missing__(self, code: int) -> int | None:
        char = chr(code)
        unseen = unicodedata.category(char) == "Cf" or char in _BLANKS or 0xFE00 <= code <= 0xFE0F
        control = unicodedata.category(char) == "Cc" and not char.isspace()
        self[code] = None if unseen or control else code
        return self[code]


_UNSEEN = _Unseen()
_THOUGHTS = re.compile(r"<\s*/\s*(?:think|thinking|thought|reasoning)\s*>", re.I)
_STYLED = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|rm|it|sf)|operatorname|mbox)\s*\{([^{}]*)\}")
_BOXED = r"\\f?boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
_ANSWER_TAG = r"<\s*(?:final_?)?answer\s*>(.*?)(?:<\s*/\s*(?:final_?)?answer\s*>|$)"
#: Boxes or tags with no word between them are one announcement of several things.
_BETWEEN = r"(?:[\s$,;/&.]|and\b|or\b)*"
_BOXES = re.compile(_BOXED)
_ANSWER_TAGS = re.compile(_ANSWER_TAG, re.I | re.S)
_BETWEEN_ALL = re.compile(_BETWEEN, re.I)
_TAG = re.compile(r"</?(?:b|i|u|em|strong|p|br|span|div|sup|sub|think|final_?answer|answer)\b[^<>\n]*>", re.I)
_STRUCK = re.compile(r"~~[^~\n]+~~")
_MARKS = re.compile(r"[*`$]|__|(?<!\w)_|_(?!\w)|^[ \t]*(?:#+[ \t]*|>[ \t]+(?=[^\W\d]))|\\(?=[\s,;!()\[\]])", re.M)
_SPACES = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r"\n(?: ?\n)+")


def folded(text: str) -> str:
    """The text in plain characters: one width and one shape for each, and none that is not seen."""
    return unicodedata.normalize("NFKC", text.translate(_UNSEEN)).translate(_UNSEEN).translate(_QUOTES)


def plain(text: str) -> str:
    """The folded text without Markdown, LaTeX and HTML around words.

    A boxed answer and one in `<answer>` tags become lines that announce an answer.
    """
    text = _STRUCK_LETTER.sub("", folded(text))
    text = _announced(_BOXES, _STYLED.sub(r"\1", _STYLED.sub(r"\1", text)))
    text = _TAG.sub("", _announced(_ANSWER_TAGS, text))
    text = _MARKS.sub("", _STRUCK.sub("", text))
    # With short runs of space, no pattern takes long over them.
    return _BLANK_LINES.sub("\n\n", _SPACES.sub(" ", text))


def said_last(text: str) -> str:
    """What follows a trace's thoughts, or all of it where nothing does: a thought is not the answer that was given."""
    ends = [found.end() for found in _THOUGHTS.finditer(text)]
    rest = text[ends[-1] :] if ends else text
    return rest if folded(rest).strip() else text


def _announced(form: re.Pattern[str], text: str) -> str:
    """Each box, or tag, as a line that announces an answer; those that follow one another at once as one line with a list."""
    pieces, done = list[str](), 0
    for found in form.finditer(text):
        between = text[done : found.start()]
        if done and _BETWEEN_ALL.fullmatch(between):
            pieces[-1:] = [f" and {found[1].strip()}", "\n"]
        else:
            pieces += [between, f"\nFinal answer: {found[1].strip()}", "\n"]
        done = found.end()
    return "".join([*pieces, text[done:]])
