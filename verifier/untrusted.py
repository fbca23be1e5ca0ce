"""The one place where foreign text is made harmless before a judge reads it.

Questions, traces and passages are data. Whatever in them looks like one of our tags, or like a chat template's control
sequence, keeps its words and loses its brackets, so that a reader sees what was written and a model is not addressed by it.
"""

import re
import unicodedata

from verifier.parse import Tag

# Characters that take no room of their own: controls, combining accents, soft hyphen, zero-width spaces and joiners, direction
# marks, variation selectors …
_INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f\u0300-\u036f"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U000e0000-\U000e0fff"
)
# Letters of other scripts that look like those of our tags. Width, weight, accents and case are folded by Unicode itself.
_LOOKALIKES = {
    "а": "a", "α": "a", "ɑ": "a", "е": "e", "ε": "e", "һ": "h", "н": "h", "і": "i", "ι": "i", "ı": "i", "к": "k", "κ": "k",
    "м": "m", "п": "n", "ո": "n", "η": "n", "о": "o", "ο": "o", "օ": "o", "г": "r", "ѕ": "s", "т": "t", "τ": "t", "ԝ": "w",
    "ω": "w", "с": "c", "ϲ": "c", "ƒ": "f", "ʀ": "r", "ᴡ": "w",
}  # fmt: skip


class _Folding(dict[int, str]):
    """Code point to the plain lower-case character behind it: one in, one out, so that positions carry over."""

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKD", chr(code))[:1].lower()[:1] or chr(code)
        self[code] = _LOOKALIKES.get(plain, plain)
        return self[code]


_FOLDING = _Folding()

_GAP = rf"[\s{_INVISIBLE}]*+"
_LESS = r"(?:[<\u2039\u2329\u27e8\u3008\u02c2\u1438\u276e\u2770\u00ab\u300a]|&lt;|&#0*60;|&#x0*3c;)"
_GREATER = r"(?:[>\u203a\u232a\u27e9\u3009\u02c3\u1433\u276f\u2771\u00bb\u300b]|&gt;|&#0*62;|&#x0*3e;)"
_SLASH = r"[/\\\u2044\u2215\u29f8]"
_NAMES = "|".join(_GAP.join(tag.value) for tag in Tag)
_BEGINNINGS = "|".join(
    _GAP.join(start)
    for start in sorted({tag.value[:n] for tag in Tag for n in range(1, len(tag.value))}, key=len, reverse=True)
)

# `<`, a tag's name with anything invisible in between, attributes if it likes, and `>`; or the same without its `>`.
_TAG_NAME = rf"{_GAP}(?:{_SLASH}{_GAP})?(?:{_NAMES})(?![a-z0-9])"
# `<` and the beginning of a name where the text ends: what comes after this text could complete it.
_CUT = rf"{_GAP}(?:{_SLASH}{_GAP})?(?:{_BEGINNINGS})?{_GAP}"
# `<|im_end|>`, `<s>`, `<<SYS>>`, `[INST]`, `<start_of_turn>`: control sequences of common chat templates.
_CONTROL = "s|bos|eos|pad|unk|start_of_turn|end_of_turn"
_SUSPECT = re.compile(
    rf"{_LESS}(?P<tag>{_TAG_NAME}[^<>]{{0,40}}?){_GREATER}"
    rf"|{_LESS}(?P<stub>{_TAG_NAME})"
    rf"|{_LESS}(?P<cut>{_CUT})\Z"
    rf"|{_LESS}{_GAP}\|(?P<piped>[^<>|]{{0,200}})\|{_GAP}{_GREATER}"
    rf"|{_LESS}(?P<control>{_GAP}{_SLASH}?(?:{_CONTROL}){_GAP}){_GREATER}"
    rf"|{_LESS}{{2}}(?P<system>{_GAP}{_SLASH}?sys{_GAP}){_GREATER}{{2}}"
    rf"|\[(?P<instruction>{_GAP}{_SLASH}?inst{_GAP})\]"
)
_BRACKET = re.compile(
    r"[<\u2039\u2329\u27e8\u3008\u02c2\u1438\u276e\u2770\u00ab\u300a&\[]"
)  # what all of the above begin with
_UNSEEN = re.compile(f"[{_INVISIBLE}]")


def neutralise(text: str) -> str:
    """Return `text` with everything that could pass for a tag or a control sequence defused.

    Case, width, look-alike letters and brackets, spaces and zero-width characters inside the tag make no difference. The words
    stay, in round brackets: `<answer>1</answer>` becomes `(answer)1(/answer)`. Text without such things comes back unchanged,
    except that lone surrogates, which no tokenizer can encode, become `?`.
    """
    if text.isascii() and not _BRACKET.search(text):
        return text
    text = text.encode("utf-8", "replace").decode("utf-8")
    while (harmless := _defuse(text)) != text:  # what was inside a pair of brackets may have brackets of its own
        text = harmless
    return text


def _defuse(text: str) -> str:
    pieces: list[str] = []
    done = at = 0
    folded = text.lower() if text.isascii() else text.translate(_FOLDING)
    while bracket := _BRACKET.search(folded, at):
        match = _SUSPECT.match(folded, bracket.start())
        if match is None:
            at = bracket.end()
            continue
        start, end = match.span(match.lastgroup or 0)
        pieces += [text[done : match.start()], "(", _UNSEEN.sub("", text[start:end]).strip(), ")"]
        done = at = match.end()
    pieces.append(text[done:])
    return "".join(pieces)
