"""Which option a reasoning trace ends up choosing: a pure function from a text and its options to a key, or to None.

Three kinds of evidence, and the weaker kind counts only where the stronger is absent:

1. announcements ("The answer is …", a box, answer tags, "so B", "wait, C", a last line that is a letter); the last one wins, and
   one that contradicts itself, names something that is no option, or says that there is no answer makes the text unreadable;
2. conclusions ("the most likely diagnosis is …", "B is correct"); they must agree;
3. what the last sentence names, if that is one option and the sentence concludes something.

What is denied ("not A", "B is wrong") is never chosen. A text that leaves the choice open has no answer: None, never a guess.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from verifier.answers import cues
from verifier.answers.forms import Marked, Named, plain

#: Part of what a generated pack depends on: raise it when texts come to be read differently.
EXTRACTOR_VERSION = 2

_MOST_FILLERS = 12  # words between an announcement and its option; beyond that it is another matter
_LONGEST_CLAUSE = 600  # characters


@dataclass(frozen=True, slots=True)
class _Statement:
    """What one announcement says."""

    start: int
    end: int
    chosen: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    void: bool = False  # it says that there is no answer, or contradicts itself


def extract_answer(text: str, options: Mapping[str, str]) -> str | None:
    """The key of the option that a text chooses.

    Args:
        text: somebody's reasoning, in any dress: Markdown, LaTeX, full-width letters, zero-width characters.
        options: key to text, as the question gave them; the keys decide which letters are answers.

    Returns:
        A key of `options`, or None where no option, or more than one, is chosen.
    """
    if not options:
        return None
    marked = Marked(plain(text), options)
    announced = [*_announcements(marked), *_last_line(marked), *_refusals(marked), *_subjects(marked, noun=True)]
    current, decided = None, False
    for statement in sorted(announced, key=lambda statement: statement.start):
        if statement.void or len(statement.chosen) > 1:
            current, decided = None, True
        elif statement.chosen:
            (current,), decided = statement.chosen, True
        elif current in statement.denied:
            current = None
    if decided:
        return current
    concluded = {key for statement in _conclusions(marked) for key in statement.chosen}
    if concluded:
        return concluded.pop() if len(concluded) == 1 else None
    return _last_sentence(marked)


# ---- announcements ---------------------------------------------------------------------------------------------------


def _announcements(marked: Marked) -> Iterator[_Statement]:
    end = 0
    for cue in cues.ANNOUNCED.finditer(marked.text):
        if cue.start() < end or cues.UNREAL.search(marked.text, max(0, cue.start() - 200), cue.start()):
            continue
        if cue.lastgroup != "full" and cues.ELIMINATED.search(marked.text, max(0, cue.start() - 80), cue.start()):
            continue
        statement = _read(marked, cue.start(), cue.end(), letters_only=cue.lastgroup == "letter")
        if statement is None and cue.lastgroup == "full":
            statement = _read_clause(marked, cue.start(), cue.end())
        if statement is not None:
            yield _taken_back(marked.text, statement, doubtable="answer" in cue[0].lower() or cue.lastgroup == "full")
            end = statement.end


def _taken_back(text: str, statement: _Statement, *, doubtable: bool) -> _Statement:
    """The statement, or its contrary where the words around it deny it.

    What stands before "so" or "wait" (not `doubtable`) is another matter.
    """
    doubted = cues.DOUBTED.search(text, max(0, statement.start - 80), statement.start) if doubtable else None
    if doubted is None and cues.RETRACTED.match(text, statement.end) is None:
        return statement
    return replace(statement, chosen=frozenset(), denied=statement.chosen | statement.denied)


@dataclass(slots=True)
class _Reading:
    """What has been named so far of what follows an announcement."""

    chosen: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)
    clash: bool = False

    def take(self, named: Named, *, deny: bool) -> None:
        (self.denied if deny else self.chosen).append(named.key)
        self.clash = self.clash or (named.clash and not deny)


def _read(marked: Marked, start: int, at: int, *, letters_only: bool) -> _Statement | None:
    """Read the options that are named from `at` on: one, a list of several, "not A, it is C"; None if none is."""
    text, reading, deny, fillers = marked.text, _Reading(), False, 0
    while fillers < _MOST_FILLERS:
        at = _end(cues.SPACE, text, at)
        named = marked.letter_at(at) if letters_only else marked.at(at)
        if named is not None:
            if text[named.end : named.end + 3].lstrip(" )\"'").startswith("?"):
                return None  # a question
            if letters_only and not cues.LETTER_ENDS.match(text, named.end):
                break  # "so B would …" speaks of the option
            reading.take(named, deny=deny)
            at, deny = named.end, False
            if wrong := cues.WRONG.match(text, at):
                reading.denied += reading.chosen
                reading.chosen, at = [], wrong.end()
                break
            if joined := cues.JOIN.match(text, at):
                at = joined.end()
            elif reading.chosen:
                break
            else:
                at = _end(cues.TURN, text, at)
        elif denial := cues.NOT.match(text, at):
            deny, at, fillers = True, denial.end(), fillers + 1
        elif filler := cues.FILLER.match(text, at):
            at, fillers = filler.end(), fillers + 1
        else:
            break
    if not (reading.chosen or reading.denied):
        return None
    chosen = frozenset(reading.chosen) - frozenset(reading.denied)
    return _Statement(start, at, chosen, frozenset(reading.denied), void=reading.clash)


def _read_clause(marked: Marked, start: int, at: int) -> _Statement | None:
    """What an announcement says that does not begin with an option: a refusal, a letter that is none, one option further on."""
    text = marked.text
    at = _end(cues.SPACE, text, at)
    if cues.NO_ANSWER.match(text, at) or cues.FOREIGN.match(text, at):
        return _Statement(start, at, void=True)
    stop = cues.SENTENCE_END.search(text, at, at + _LONGEST_CLAUSE)
    end = stop.start() if stop else min(at + _LONGEST_CLAUSE, len(text))
    if stop and stop[0].startswith("?"):
        return None
    key = _only(marked, at, end)
    return _Statement(start, end, frozenset({key})) if key else None


def _last_line(marked: Marked) -> Iterator[_Statement]:
    """A last line that is nothing but an option, unless it ends a list of options."""
    lines = [line for line in re.finditer(r"[^\n]+", marked.text) if line[0].strip()]
    alone = [_alone(marked, line.start(), line.end()) for line in lines[-2:]]
    if not alone or alone[-1] is None or any(key not in (None, alone[-1]) for key in alone):
        return
    if not _in_list(lines[-1][0], (line[0] for line in lines[:-1])):
        yield _Statement(lines[-1].start(), lines[-1].end(), frozenset({alone[-1]}))


def _in_list(line: str, others: Iterable[str]) -> bool:
    """Whether a line is marked as others are, with another mark: "B) …" after "A) …"."""
    item = cues.ITEM.match(line)
    marks = (cues.ITEM.match(other) for other in others)
    return item is not None and any(mark and mark[2] == item[2] and mark[1] != item[1] for mark in marks)


def _alone(marked: Marked, start: int, end: int) -> str | None:
    """The option that a line consists of."""
    named = marked.at(_end(cues.ALONE_BEFORE, marked.text, start))
    if named is None or named.clash or marked.text[named.end : end].strip(" .!)\"']"):
        return None
    return named.key


def _refusals(marked: Marked) -> Iterator[_Statement]:
    for found in cues.REFUSED.finditer(marked.text):
        yield _Statement(found.start(), found.end(), void=True)


# ---- weaker evidence -------------------------------------------------------------------------------------------------


def _subjects(marked: Marked, *, noun: bool) -> Iterator[_Statement]:
    """ "B is the answer" (`noun`), "B is correct": the option that a predicate is said of."""
    for said in cues.PREDICATE.finditer(marked.text):
        if bool(said["noun"]) != noun:
            continue
        before = [
            end.end() for end in cues.SENTENCE_END.finditer(marked.text, max(0, said.start() - 300), said.start())
        ]
        start = before[-1] if before else max(0, said.start() - 300)
        for named in _named(marked, start, said.start()):
            if named.end == said.start():
                yield _Statement(named.start, said.end(), frozenset({named.key}))


def _named(marked: Marked, start: int, end: int) -> Iterator[Named]:
    """Every place that may name an option: marked letters, texts, and bare letters at the start of a clause."""
    yield from marked.pointed(start, end)
    yield from marked.said(start, end)
    for clause in cues.CLAUSE_START.finditer(marked.text, start, end):
        if named := marked.letter_at(clause.start()):
            yield named


def _conclusions(marked: Marked) -> Iterator[_Statement]:
    yield from _subjects(marked, noun=False)
    for cue in cues.CONCLUDED.finditer(marked.text):
        at = cue.end()
        statement = _read(marked, cue.start(), at, letters_only=False) or _read_clause(marked, cue.start(), at)
        if statement is not None and not statement.void:
            yield statement


def _last_sentence(marked: Marked) -> str | None:
    """The option that the last sentence concludes with; a sentence that only mentions one is no evidence."""
    end = len(marked.text.rstrip())
    starts = [found.end() for found in cues.SENTENCE_END.finditer(marked.text, 0, end) if found.end() < end]
    start = max(starts[-1] if starts else 0, end - _LONGEST_CLAUSE)
    if not cues.MARKED.search(marked.text, start, end) or cues.ITEM.match(marked.text, start):
        return None
    return _only(marked, start, end)


def _only(marked: Marked, start: int, end: int) -> str | None:
    """The one option that is named in `text[start:end]` and not denied; letters count before texts."""
    for named in (list(marked.pointed(start, end)), marked.said(start, end)):
        kept = {one.key for one in named if not _denied(marked.text, one, start)}
        if named:
            return kept.pop() if len(kept) == 1 else None
    return None


def _denied(text: str, named: Named, start: int) -> bool:
    before, after = cues.DENIED.search(text, start, named.start), cues.WRONG.match(text, named.end)
    return before is not None or after is not None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
