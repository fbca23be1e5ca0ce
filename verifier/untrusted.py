"""The one place where foreign text is made harmless before a judge reads it.

Questions, traces and passages are data. Whatever in them looks like one of our tags, or like a chat template's control
sequence, keeps its words and loses its brackets, so that a reader sees what was written and a model is not addressed by it.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable

from verifier.parse import Tag

# What stands for what in folded text, which is as long as the text itself. Its plain `<` and `>` stay what they are.
_UNSEEN, _PAD, _OTHER_LESS, _OTHER_GREATER = "\x00", "\x01", "\x02", "\x03"
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols by category, drawn as nothing
_SIGNS = {
    **dict.fromkeys("‹〈⟨〈˂ᐸ❮❰«《⟪❬≪⸂˱⧼⦑", _OTHER_LESS),
    **dict.fromkeys("›〉⟩〉˃ᐳ❯❱»》⟫❭≫⸃˲⧽⦒", _OTHER_GREATER),
    **dict.fromkeys("\\⁄∕⧸", "/"),
    **dict.fromkeys("¦∣ǀ│❘", "|"),
}
# Letters of other scripts that look like those of our tags. Width, weight, accents and case are folded by Unicode itself.
_LOOKALIKES = {
    "а": "a", "α": "a", "ɑ": "a", "е": "e", "ε": "e", "һ": "h", "н": "h", "і": "i", "ι": "i", "ı": "i", "к": "k", "κ": "k",
    "м": "m", "п": "n", "ո": "n", "η": "n", "о": "o", "ο": "o", "օ": "o", "г": "r", "ѕ": "s", "т": "t", "τ": "t", "ԝ": "w",
    "ω": "w", "с": "c", "ϲ": "c", "ƒ": "f", "ᴀ": "a", "ᴇ": "e", "ʜ": "h", "ɪ": "i", "ᴋ": "k", "ᴍ": "m", "ɴ": "n", "ᴏ": "o",
    "ʀ": "r", "ꜱ": "s", "ᴛ": "t", "ᴡ": "w", "ᴄ": "c", "ꜰ": "f", "ʙ": "b", "ᴅ": "d", "ᴘ": "p", "ᴜ": "u",
}  # fmt: skip


class _Folding(dict[int, str]):
    """Code point to the plain lower-case character behind it: one in, one out, so that positions carry over.

    Blanks become a space. What takes no room of its own (controls, accents, zero-width characters, direction marks, variation
    selectors …) becomes one sign for all of them.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        unseen = unicodedata.category(char) in ("Cc", "Cf", "Mn", "Me") or char in _BLANKS
        if char in "\t\n\v\f\r" or (char.isspace() and not unseen):
            folded = " "
        elif unseen or 0xE0000 <= code <= 0xE0FFF:  # the latter is set aside for such characters
            folded = _UNSEEN
        else:
            plain = _SIGNS.get(char) or unicodedata.normalize("NFKD", char)[:1].lower()[:1] or char
            folded = _SIGNS.get(plain) or _LOOKALIKES.get(plain, plain)
        self[code] = folded
        return folded


_FOLDING = _Folding()

# A character's name in HTML, once escaped or several times; browsers do without the semicolon. (No possessive group: early
# releases of Python 3.11 go on from the wrong place behind one.)
_ENTITY = re.compile(
    r"&(?:amp;|#0*+38;|#x0*+26;)*(?:(?P<less>lt|lang|lsaquo|laquo)|(?P<greater>gt|rang|rsaquo|raquo)"
    r"|#0*+(?P<decimal>[0-9]{1,7})(?![0-9])|#x0*+(?P<hex>[0-9a-f]{1,6})(?![0-9a-f]));?"
)

# Nothing below is tried over more than what lies between two brackets, or a bounded number of characters.
_GAP = rf"[ {_UNSEEN}{_PAD}]*+"
_LESS = rf"[<{_OTHER_LESS}]{_PAD}*+"
_GREATER = rf"[>{_OTHER_GREATER}]{_PAD}*+"


def _any_of(names: Iterable[str], gap: str = f"[{_UNSEEN}{_PAD}]*+") -> str:
    return "|".join(map(gap.join, names))


# `<`, a tag's name with anything invisible in between, attributes if it likes, and `>`; or the same without its `>`.
_TAG = rf"{_GAP}(?:/{_GAP})?(?:{_any_of(Tag, _GAP)})(?![a-z0-9])(?:[^<>{_OTHER_GREATER}]{{0,40}}+(?={_GREATER}))?"
# `<|im_end|>`, `<s>`, `<<SYS>>`, `[INST]`, `<start_of_turn>`, `<|im_start` …: control sequences of common chat templates.
_CONTROL = _any_of(
    ["s", "bos", "eos", "eot", "pad", "unk", "mask", "sep", "cls", "endoftext", "begin_of_text", "end_of_text",
     "start_of_turn", "end_of_turn", "tool_call", "tool_response"]
)  # fmt: skip
_PIPED = r"[a-z]{1,20}+_[a-z_]{1,30}+|endoftext|system|user|assistant"
_SQUARE = _any_of(["inst", "system_prompt", "available_tools", "tool_calls", "tool_results", "tool_content"])
_SUSPECT = re.compile(
    rf"{_LESS}(?:(?P<tag>{_TAG})(?:{_GREATER})?"
    rf"|{_GAP}\|(?:(?P<piped>[^<>|]{{0,200}}+)\|{_GAP}{_GREATER}|(?P<opened>{_GAP}(?:{_PIPED})))"
    rf"|(?P<control>{_GAP}(?:/{_GAP})?(?:{_CONTROL}){_GAP}){_GREATER}"
    rf"|{_LESS}(?P<system>{_GAP}(?:/{_GAP})?{_any_of(['sys'])}{_GAP}){_GREATER}{_GREATER})"
    rf"|\[(?P<square>{_GAP}(?:/{_GAP})?(?:{_SQUARE}){_GAP})\]"
)
# The beginning of a name where the text ends: what comes after this text could complete it.
_BEGINNINGS = sorted({tag.value[:n] for tag in Tag for n in range(1, len(tag.value))}, key=len, reverse=True)
_CUT = re.compile(
    rf"{_LESS}(?P<cut>{_GAP}(?:/{_GAP})?(?:{_any_of(_BEGINNINGS, _GAP)})?{_GAP}|{_GAP}\|[a-z0-9_ {_UNSEEN}]{{0,40}}+\|?{_GAP})"
)

_ASCII_BEGINNING = re.compile(r"[<&\[]")  # of whatever is made harmless, in texts without disguises
#: Part of every judge's id: raised when what a judge reads of the same foreign text changes.
NEUTRALISE_VERSION = 2

_PASSES = 8  # brackets within brackets; who nests them deeper than this means no good


def neutralise(text: str) -> str:
    """Return `text` with everything that could pass for a tag or a control sequence defused.

    Case, width, look-alike letters and brackets, spaces and zero-width characters inside the tag make no difference. The words
    stay, in round brackets: `<answer>1</answer>` becomes `(answer)1(/answer)`. Text without such things comes back unchanged,
    except that lone surrogates, which no tokenizer can encode, become `?`. The time is linear in the length.
    """
    if text.isascii() and not _ASCII_BEGINNING.search(text):  # nearly all texts
        return text
    text = text.encode("utf-8", "replace").decode("utf-8")
    for _ in range(_PASSES):
        harmless = _defuse(text)
        if harmless == text:
            return text
        text = harmless  # what was inside a pair of brackets may have brackets of its own
    return _without_brackets(text)


def _defuse(text: str) -> str:
    folded = _fold(text)
    pieces: list[str] = []
    done = 0
    for match in _SUSPECT.finditer(folded):
        pieces += [text[done : match.start()], _in_round_brackets(text, folded, match)]
        done = match.end()
    last = max(folded.rfind("<"), folded.rfind(_OTHER_LESS))
    if last >= done and (cut := _CUT.fullmatch(folded, last)):
        pieces += [text[done:last], _in_round_brackets(text, folded, cut)]
        done = len(text)
    pieces.append(text[done:])
    return "".join(pieces)


def _in_round_brackets(text: str, folded: str, match: re.Match[str]) -> str:
    start, end = match.span(match.lastgroup or 0)
    words = (char for char, plain in zip(text[start:end], folded[start:end], strict=True) if plain != _UNSEEN)
    return f"({''.join(words).strip()})"


def _fold(text: str) -> str:
    """Plain lower-case characters for those of the text, one for one; entities are filled up with pads."""
    folded = text.translate(_FOLDING)
    return _ENTITY.sub(_character, folded) if "&" in folded else folded


def _character(entity: re.Match[str]) -> str:
    if entity["less"]:
        plain = _OTHER_LESS
    elif entity["greater"]:
        plain = _OTHER_GREATER
    else:
        code = int(entity["decimal"]) if entity["decimal"] else int(entity["hex"], 16)
        plain = _FOLDING[code] if code <= sys.maxunicode else "?"
        plain = {"<": _OTHER_LESS, ">": _OTHER_GREATER}.get(plain, plain)
    return plain + _PAD * (len(entity[0]) - 1)


def _without_brackets(text: str) -> str:
    """The text with round brackets for all brackets, and without entities."""
    blunt = {"<": "(", _OTHER_LESS: "(", "[": "(", ">": ")", _OTHER_GREATER: ")", "]": ")", "&": "+", _PAD: ""}
    pairs = zip(text, _fold(text), strict=True)
    return "".join(blunt.get(plain, "+" if char == "&" else char) for char, plain in pairs)
