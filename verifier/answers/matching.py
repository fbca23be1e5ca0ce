"""Whether a trace's final answer is the right one, for questions with options and for open ones."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from verifier.answers.extract import extract_answer
from verifier.answers.plain import folded, plain

_OPTION_LINE = re.compile(r"^[ \t>*-]*[(\[]?([A-Z])[)\].:][ \t]+(\S.*)$", re.M)
#: An open answer is read only where it is announced in so many words; a box and answer tags have become such a line.
_ANNOUNCED = re.compile(r"\b(?:final|correct|right|my|the)\s+answer(?:\s+is\b\s*:?|\s*:)|^\s*answer\s*:", re.I | re.M)
_ENDS = re.compile(r"[\n;]|\.(?=\s|$)")
_WORD = re.compile(r"\w+(?:[.,]\w+)*|[<>≤≥=+±%-]")
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True, slots=True)
class Final:
    """What a trace comes to."""

    answer: str | None  # the key of an option, or the words of an open answer; None: none can be read
    fits: bool | None  # whether it is the label; None: there is no label, or one that is none of the options


def final_answer(trace: str, options: Mapping[str, str] | None, label: str | None = None) -> Final:
    """Read the final answer of a trace and compare it with the right one.

    Args:
        trace: somebody's reasoning.
        options: key to text; None for an open question.
        label: the right answer: a key, or the text of an option; for an open question its words.

    An open answer fits if it is the label, word by word, apart from case, punctuation and a leading article. An answer that
    cannot be read does not fit.
    """
    if not options:
        answer = open_answer(trace)
        if label is None or not _words(label):
            return Final(answer, None)
        return Final(answer, answer is not None and _words(answer) == _words(label))
    answer = extract_answer(trace, options)
    right = None if label is None else option_of(label, options)
    return Final(answer, None if right is None else answer == right)


def option_of(label: str, options: Mapping[str, str]) -> str | None:
    """The key that a label names: by itself, or by the option's text; None if it names none, or several."""
    named = folded(label).strip().strip("()[].:")
    for same in (
        [key for key in options if key == label.strip()],
        [key for key in options if folded(key) == named],
        [key for key in options if folded(key).casefold() == named.casefold()],
        [key for key, text in options.items() if _words(text) and _words(text) == _words(label)],
    ):
        if same:
            return same[0] if len(same) == 1 else None
    return None


def open_answer(trace: str) -> str | None:
    """The last answer that a trace announces ("The answer is …", a box, answer tags), up to the end of its clause."""
    text = plain(trace)
    found = list(_ANNOUNCED.finditer(text))
    if not found:
        return None
    rest = text[found[-1].end() :].lstrip()
    end = _ENDS.search(rest)
    answer = rest[: end.start() if end else len(rest)].strip(" \t:,.!\"'")
    return answer if _words(answer) else None


def lettered_options(question: str) -> dict[str, str] | None:
    """The options that a question lists in lines of its own: "A. …", "(B) …"; None unless they are A, B and so on, in order.

    Of several lists the last counts.
    """
    run = list[tuple[str, str]]()
    for line in _OPTION_LINE.finditer(question):
        if line[1] == "A":
            run = []
        if line[1] == ascii_uppercase[len(run)]:
            run.append((line[1], line[2].rstrip(" \t*")))
    return dict(run) if len(run) > 1 else None


def _words(text: str) -> tuple[str, ...]:
    words = tuple(word.casefold() for word in _WORD.findall(plain(text)))
    return words[1:] if len(words) > 1 and words[0] in _ARTICLES else words
