"""What one announcement says: the options that are chosen, denied, or held open after it."""

import re
from dataclasses import dataclass, field

from verifier.answers import cues
from verifier.answers.forms import How, Marked, Named

_MOST_FILLERS = 12  # words between an announcement and its option; beyond that it is another matter


@dataclass(frozen=True, slots=True)
class Statement:
    """What one announcement says."""

    start: int
    end: int
    chosen: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()  # what is said to be right as well
    void: bool = False  # it says that there is no answer, or contradicts itself


@dataclass(slots=True)
class _Reading:
    """What has been named so far of what follows an announcement."""

    at: int  # where to read on
    chosen: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)
    aside: int = 0  # of the chosen, those before a parenthesis
    deny: bool = False  # what comes next is denied
    clash: bool = False
    fillers: int = 0
    over: bool = False


def read(marked: Marked, start: int, at: int, *, letters_only: bool) -> Statement | None:
    """Read the options that are named from `at` on: one, a list of several, "not A, it is C"; None if none is."""
    text, reading = marked.text, _Reading(at)
    while reading.fillers < _MOST_FILLERS and not reading.over:
        reading.at = end_of(cues.SPACE, text, reading.at)
        named = marked.letter_at(reading.at) if letters_only else marked.at(reading.at)
        if named is not None:
            if text[named.end : named.end + 3].lstrip(" )\"'").startswith(("?", "吗")):
                return None  # a question
            if letters_only and not cues.LETTER_ENDS.match(text, named.end):
                break  # "so B would …" speaks of the option
            _take(marked, reading, named)
        elif denial := cues.NOT.match(text, reading.at):
            reading.deny, reading.at, reading.fillers = True, denial.end(), reading.fillers + 1
        elif filler := cues.FILLER.match(text, reading.at):
            reading.at, reading.fillers = filler.end(), reading.fillers + 1
        else:
            break
    if not (reading.chosen or reading.denied):
        return None
    chosen = frozenset(reading.chosen) - frozenset(reading.denied)
    return Statement(start, reading.at, chosen, frozenset(reading.denied), void=reading.clash)


def _take(marked: Marked, reading: _Reading, named: Named) -> None:
    """Take an option into what is read, and go on to where the next may stand."""
    text, deny = marked.text, reading.deny
    (reading.denied if deny else reading.chosen).append(named.key)
    reading.clash = reading.clash or (named.clash and not deny)
    reading.at, reading.deny = named.end, deny and cues.JOINS_DENIED.match(text, named.end) is not None
    if wrong := cues.WRONG.match(
        text, reading.at
    ):  # it is, and with it the list that it ends: not what stands before its "("
        reading.denied += reading.chosen[reading.aside :]
        del reading.chosen[reading.aside :]
        reading.at, reading.over = wrong.end(), True
    elif reading.chosen and (beside := _beside(marked, named)):
        reading.chosen += beside.keys
        reading.at, reading.over = beside.end, True
    elif (joined := cues.JOIN.match(text, reading.at)) and (reading.chosen or reading.deny):
        if "(" in joined[0]:
            reading.aside = len(reading.chosen)
        reading.at = joined.end()
    elif reading.chosen:
        reading.over = True
    else:
        reading.at = end_of(cues.TURN, text, reading.at)


@dataclass(frozen=True, slots=True)
class _Beside:
    """Options that are named beside another, and where that ends."""

    keys: list[str]
    end: int


def _beside(marked: Marked, named: Named) -> _Beside | None:
    """Options that are held open beside the one just named, or follow it in a list that decides nothing."""
    text = marked.text
    hedge = cues.HEDGED.match(text, named.end)
    if hedge and (other := marked.at(hedge.end())) and other.key != named.key:
        return None if cues.WRONG.match(text, other.end) else _Beside([other.key], other.end)
    between = cues.LISTED_WITH_TEXTS if named.how is How.BOTH else cues.LISTED
    listed, at = list[str](), named.end
    while (start := end_of(between, text, at)) > at and (other := marked.at(start)) and other.how is named.how:
        listed.append(other.key)
        at = other.end
    # "A. B. C." and "A\nB", but not "D. A, B and C would be …".
    is_over = cues.LINE_ENDS.match(text, at) or (len(listed) > 1 and text[at - 1] == ".")
    return _Beside(listed, at) if listed and is_over and not cues.WRONG.match(text, at) else None


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern that may stand at a place ends there, or the place itself."""
    found = pattern.match(text, at)
    return found.end() if found else at
