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
from dataclasses import replace

from verifier.answers import cues
from verifier.answers.forms import Marked, Named
from verifier.answers.plain import plain, said_last
from verifier.answers.statement import Statement, end_of, read

#: Part of what a generated pack depends on: raise it when texts come to be read differently.
EXTRACTOR_VERSION = 5

_LONGEST_CLAUSE = 600  # characters
_LONGEST_SUBJECT = 300  # characters


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
    marked = Marked(plain(said_last(text)), options)
    announced = list(_announcements(marked))
    announced += [
        *_last_line(marked, announced[-1].end if announced else 0),
        *_refusals(marked),
        *_subjects(marked, noun=True),
        *_also(marked),
    ]
    current, decided = None, False
    for statement in sorted(announced, key=lambda statement: statement.start):
        if statement.void or len(statement.chosen) > 1:
            current, decided = None, True
        elif statement.chosen:
            (current,), decided = statement.chosen, True
        elif current in statement.denied or (current and statement.beside - {current}):
            current = None
    if decided:
        return current
    concluded = {key for statement in _conclusions(marked) for key in statement.chosen}
    if concluded:
        return concluded.pop() if len(concluded) == 1 else None
    return _last_sentence(marked)


# ---- announcements ---------------------------------------------------------------------------------------------------


def _announcements(marked: Marked) -> Iterator[Statement]:
    text, end = marked.text, 0
    for cue in cues.ANNOUNCED.finditer(text):
        if cue.start() < end:
            continue
        kind = cue.lastgroup
        statement = read(marked, cue.start(), cue.end(), letters_only=kind == "letter")
        if statement is None and kind in ("full", "abroad"):
            statement = _read_clause(marked, cue.start(), cue.end(), further=kind == "full")
        if statement is None or cues.UNREAL.search(text, max(0, cue.start() - 200), cue.start()):
            continue
        if kind in ("head", "letter") and cues.ELIMINATED.search(text, max(0, cue.start() - 80), cue.start()):
            continue
        yield _taken_back(text, statement, doubtable="answer" in cue[0].lower() or kind == "full")
        end = statement.end


def _taken_back(text: str, statement: Statement, *, doubtable: bool) -> Statement:
    """The statement, or its contrary where the words around it deny it.

    What stands before "so" or "wait" (not `doubtable`) is another matter.
    """
    doubted = cues.DOUBTED.search(text, max(0, statement.start - 80), statement.start) if doubtable else None
    if doubted is None and cues.RETRACTED.match(text, statement.end) is None:
        return statement
    return replace(statement, chosen=frozenset(), denied=statement.chosen | statement.denied)


def _read_clause(marked: Marked, start: int, at: int, *, further: bool = True) -> Statement | None:
    """What an announcement says that does not begin with an option: a refusal, a letter that is none, one option `further` on."""
    text = marked.text
    at = end_of(cues.SPACE, text, at)
    if cues.NO_ANSWER.match(text, at) or cues.FOREIGN.match(text, at):
        return Statement(start, at, void=True)
    if not further:
        return None
    stop = cues.SENTENCE_END.search(text, at, at + _LONGEST_CLAUSE)
    end = stop.start() if stop else min(at + _LONGEST_CLAUSE, len(text))
    if stop and stop[0].startswith("?"):
        return None
    key, reasons = _only(marked, at, end), cues.REASONS.search(text, at, end)
    if key and reasons and _only(marked, at, reasons.start()) != key:
        return None  # "protamine, because it reverses heparin"
    return Statement(start, end, frozenset({key})) if key else None


def _last_line(marked: Marked, start: int) -> Iterator[Statement]:
    """A last line after `start` that is nothing but an option, unless it ends a list of options."""
    lines = [line for line in re.finditer(r"[^\n]+", marked.text) if line[0].strip()]
    alone = [_alone(marked, line.start(), line.end()) for line in lines[-2:]]
    if not alone or alone[-1] is None or any(key not in (None, alone[-1]) for key in alone):
        return
    if lines[-1].start() < start:
        return
    if not _in_list(lines[-1][0], (line[0] for line in lines[:-1])):
        yield Statement(lines[-1].start(), lines[-1].end(), frozenset({alone[-1]}))


def _in_list(line: str, others: Iterable[str]) -> bool:
    """Whether a line is marked as others are, with another mark: "B) …" after "A) …"."""
    item = cues.ITEM.match(line)
    marks = (cues.ITEM.match(other) for other in others)
    return item is not None and any(mark and mark[2] == item[2] and mark[1] != item[1] for mark in marks)


def _alone(marked: Marked, start: int, end: int) -> str | None:
    """The option that a line consists of."""
    named = marked.at(end_of(cues.ALONE_BEFORE, marked.text, start))
    if named is None or named.clash or marked.text[named.end : end].strip(" .!)\"']"):
        return None
    return named.key


def _refusals(marked: Marked) -> Iterator[Statement]:
    for found in cues.REFUSED.finditer(marked.text):
        yield Statement(found.start(), found.end(), void=True)


# ---- weaker evidence -------------------------------------------------------------------------------------------------


def _subjects(marked: Marked, *, noun: bool) -> Iterator[Statement]:
    """ "B is the answer" (`noun`), "B is correct": the option that a predicate is said of."""
    for said in cues.PREDICATE.finditer(marked.text):
        if bool(said["noun"]) == noun and (named := _subject(marked, said.start())):
            yield Statement(named.start, said.end(), frozenset({named.key}))


def _also(marked: Marked) -> Iterator[Statement]:
    """ "A is also correct": an option that is to count beside another."""
    for said in cues.ALSO.finditer(marked.text):
        if named := _subject(marked, said.start()):
            yield Statement(named.start, said.end(), beside=frozenset({named.key}))


def _subject(marked: Marked, end: int) -> Named | None:
    """The option that is named right before `end`, in the same sentence."""
    if not marked.may_end_at(end):
        return None
    first = max(0, end - _LONGEST_SUBJECT)
    before = [found.end() for found in cues.SENTENCE_END.finditer(marked.text, first, end)]
    ending = (named for named in _named(marked, before[-1] if before else first, end) if named.end == end)
    return next(ending, None)


def _named(marked: Marked, start: int, end: int) -> Iterator[Named]:
    """Every place that may name an option: marked letters, texts, and bare letters at the start of a clause."""
    yield from marked.pointed(start, end)
    yield from marked.said(start, end)
    for clause in cues.CLAUSE_START.finditer(marked.text, start, end):
        if named := marked.letter_at(clause.start()):
            yield named


def _conclusions(marked: Marked) -> Iterator[Statement]:
    yield from _subjects(marked, noun=False)
    for cue in cues.CONCLUDED.finditer(marked.text):
        at = cue.end()
        statement = read(marked, cue.start(), at, letters_only=False) or _read_clause(marked, cue.start(), at)
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
