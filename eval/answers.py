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
from dataclasses import dataclass, field

from eval.answer_forms import Marked, Named, plain

#: Part of what a generated pack depends on: raise it when texts come to be read differently.
EXTRACTOR_VERSION = 1

_COPULA = (
    r"(?:\s+(?:choice|option|letter|key|here|therefore|thus|then|clearly|most likely|likely|probably))*\s*"
    r"(?:\b(?:is|was|are|be|becomes|remains|(?:would|should|must|will|could|might|may|has to|seems to|appears to) be)(?=n't|\b)"
    r"|:|=|-+>|→|-\s)"
)
_OF = r"(?:\s+(?:to|for|among|from|of|in|here|that|left|remaining)\b[^.\n:]{0,80}?)?"
_GOOD = r"(?:correct|right|best|final|true|appropriate|accurate|suitable|chosen|only|ideal|preferred|likely)"
_SO = (
    r"so|thus|hence|therefore|ergo|accordingly|consequently|in conclusion|finally|wait|actually|no|sorry|hmm|correction"
    r"|scratch that|on second thought|i mean|i meant|make that|rather"
)
_ANNOUNCED = re.compile(
    # An option may follow, or a clause that names one;
    rf"(?P<full>(?<!wrong )(?<!incorrect )\banswers?\b{_OF}{_COPULA}"
    rf"|\b{_GOOD}\s+(?:\w+\s+)?(?:option|choice|selection|response)\b{_OF}{_COPULA}"
    r"|(?:答案|正解|答え|回答)\s*(?:应该|應該)?\s*(?:是|为|為|選|选|は|:)+"
    r"|\b(?:respuesta|réponse|antwort|risposta|resposta)\b[^.\n:]{0,40}?(?::|\b(?:es|est|ist|è|é)\b))"
    # an option must follow at once;
    r"|(?P<head>\b(?:choose|chose|select|pick|opt for|go with|going with|settle on)\b(?: answer| option| choice)?:?)"
    # the letter of one must.
    rf"|(?P<letter>\banswer(?: choice| option)?(?=\s)|选择?|(?:^|(?<=[\s,.;:(-]))(?:{_SO})\b[,:;.!-]*)",
    re.I | re.M,
)
_UNREAL = re.compile(
    r"\b(?:if|whether|unless|suppose|assuming|were)\b[^.\n,;]{0,30}$|\b(?:if|suppose|assuming)\b[^.\n;]*\bthen\s+(?:\w+\s+){0,3}$", re.I
)
_ELIMINATED = re.compile(r"\b(?:eliminat\w*|rul\w+ out|exclud\w*|discard\w*|reject\w*|cross\w* out|not)\b[^.\n;]{0,40}$", re.I)
_SPACE = re.compile(r"[\s\"']*")
_FILLER = re.compile(
    r"(?:(?:the|that(?!'s)|this|option|choice|letter|number|answer|is|be|was|would|should|must|most|likely|clearly|probably|definitely"
    r"|certainly|therefore|thus|hence|simply|obviously|indeed|actually|still|either|both|between|correct|best|right|it's|that's|it"
    r"|now|going|to|one|labell?ed|marked|final|so|then|wait|no|sorry|hmm|i think|i believe|i guess|i say|i choose|i pick"
    r"|i go with|i'd say|i'd choose|i'll go with|we choose)\b|[:=>→,;.!…(\[-])[ ]*",
    re.I,
)
_NOT = re.compile(r"(?:not|n't|neither|nor|never|other than|cannot be|can't be|rather than|instead of|不是|非)(?![a-z])\s*", re.I)
_JOIN = re.compile(r"[ ]*(?:[,/&+、(]|\band\b|\bor\b|\bversus\b|\bvs\b\.?|和|或)[ ]*(?:\b(?:and|or)\b[ ]*)?", re.I)
_TURN = re.compile(r"[ \n]*[,;.]?[ ]*\(?(?:but|rather|instead|it's|it is|the|so)?\b[ ]*", re.I)
_WRONG = re.compile(
    r"[\"')\]]*\s*(?:[:-]\s*(?:this (?:option )?is\s+)?)?"
    r"(?:(?:is|are|was|were|would be|can be|seems|both|all|also|clearly|therefore|thus)\s+)*"
    r"(?:isn't|aren't|wasn't|(?<=is )not\b(?! only)|(?<=are )not\b(?! only)|incorrect|wrong|false|inappropriate|ruled out|excluded"
    r"|eliminated|unlikely|less likely)",
    re.I,
)
_LETTER_ENDS = re.compile(
    r"[\"')\]]*\s*(?:$|[.;:!\n(。]|[^\x00-\x7f]|,(?! (?:which|who|that|if)\b)|(?:because|since|as|and|or)\b|- |[/&])"
    r"|[\"')\]]*\s+(?:(?:is|are)\s+(?:\w+\s+)?(?:wrong|incorrect|false|ruled out)|is (?:the )?(?:my )?(?:final )?answer)", re.I
)
_NO_ANSWER = re.compile(
    r"\s*(?:un(?:clear|known|certain)|indeterminate|undetermined|not (?:clear|known|given|provided|listed|among|available|possible"
    r"|in the|one of)|none of (?:the|these)|cannot|can't|impossible|n/?a\b|ambiguous)",
    re.I,
)
_REFUSED = re.compile(
    r"\b(?:cannot|can't|can not|could not|couldn't|unable to|not able to|not possible to|impossible to|not sufficient to"
    r"|insufficient to)\s+(?:be\s+)?(?:\w+ly\s+)?(?:determine|answer|decide|choose|conclude|tell which|say which|select)",
    re.I,
)
_FOREIGN = re.compile(r"[(\[]\s*[A-Za-z]\s*[)\]]|[A-Z](?=\s*(?:$|\n|[.,;)](?!\w)))")
_CONCLUDED = re.compile(
    r"\b(?:most (?:likely|appropriate|probable|accurate|consistent|suitable|commonly?|important)|best|correct|next|first-line|only)\b"
    r"[^.\n]{0,160}?\b(?:is|was|would be|are|be)\b:?",
    re.I,
)
_PREDICATE = re.compile(
    r"[\s\"')\].:]*,?\s+(?:is|must be|would be|seems|appears to be|remains|should be|being)"
    r"\s+(?:(?:\w+ly|thus|hence|the|my|most|our)\s+)*"
    r"(?:(?P<noun>answer|(?:correct|right|best|final|appropriate)\s+(?:answer|choice|option))|correct|right|best|true|likely)\b",
    re.I,
)
_SENTENCE_END = re.compile(r"[.!?。][\"')\]]*(?=\s+[A-Z(\[\"'*]|\s*$|\n)|\n")
_CLAUSE_START = re.compile(r"(?:^|(?<=[.!?,;:]\s)|(?<=\bthat\s)|(?<=\band\s))(?=\w)", re.M)
_DENIED = re.compile(
    r"\b(?:not|never|rather than|instead of|unlike|excludes?|rules? out|ruled out|less likely|no|(?:could|may|might)(?: also)? be)\b"
    r"[^,;]{0,30}$|n't\b[^,;]{0,30}$",
    re.I,
)
_ITEM = re.compile(r"[\s-]*([A-Za-z0-9]{1,3})([.):])")
_MARKED = re.compile(
    r"\b(?:therefore|thus|hence|so|in conclusion|conclude|consequently|based on|suggests?|suggesting|indicates?|consistent with"
    r"|most|best|must|leaves|left with|called|known as|points? to|diagnosis)\b",
    re.I,
)
_ALONE_BEFORE = re.compile(r"[\s\"'-]*")


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
    for cue in _ANNOUNCED.finditer(marked.text):
        if cue.start() < end or _UNREAL.search(marked.text, max(0, cue.start() - 200), cue.start()):
            continue
        if cue.lastgroup != "full" and _ELIMINATED.search(marked.text, max(0, cue.start() - 80), cue.start()):
            continue
        statement = _read(marked, cue.start(), cue.end(), letters_only=cue.lastgroup == "letter")
        if statement is None and cue.lastgroup == "full":
            statement = _read_clause(marked, cue.start(), cue.end())
        if statement is not None:
            yield statement
            end = statement.end


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
    text, reading, deny = marked.text, _Reading(), False
    while True:
        at = _end(_SPACE, text, at)
        named = marked.letter_at(at) if letters_only else marked.at(at)
        if named is not None:
            if text[named.end : named.end + 3].lstrip(" )\"'").startswith("?"):
                return None  # a question
            if letters_only and not _LETTER_ENDS.match(text, named.end):
                break  # "so B would …" speaks of the option
            reading.take(named, deny=deny)
            at, deny = named.end, False
            if wrong := _WRONG.match(text, at):
                reading.denied += reading.chosen
                reading.chosen, at = [], wrong.end()
                break
            if joined := _JOIN.match(text, at):
                at = joined.end()
            elif reading.chosen:
                break
            else:
                at = _end(_TURN, text, at)
        elif denial := _NOT.match(text, at):
            deny, at = True, denial.end()
        elif filler := _FILLER.match(text, at):
            at = filler.end()
        else:
            break
    if not (reading.chosen or reading.denied):
        return None
    chosen = frozenset(reading.chosen) - frozenset(reading.denied)
    return _Statement(start, at, chosen, frozenset(reading.denied), void=reading.clash)


def _read_clause(marked: Marked, start: int, at: int) -> _Statement | None:
    """What an announcement says that does not begin with an option: a refusal, a letter that is none, one option further on."""
    text = marked.text
    at = _end(_SPACE, text, at)
    if _NO_ANSWER.match(text, at) or _FOREIGN.match(text, at):
        return _Statement(start, at, void=True)
    stop = _SENTENCE_END.search(text, at)
    end = stop.start() if stop else len(text)
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
    item = _ITEM.match(line)
    marks = (_ITEM.match(other) for other in others)
    return item is not None and any(mark and mark[2] == item[2] and mark[1] != item[1] for mark in marks)


def _alone(marked: Marked, start: int, end: int) -> str | None:
    """The option that a line consists of."""
    named = marked.at(_end(_ALONE_BEFORE, marked.text, start))
    if named is None or named.clash or marked.text[named.end : end].strip(" .!)\"']"):
        return None
    return named.key


def _refusals(marked: Marked) -> Iterator[_Statement]:
    for found in _REFUSED.finditer(marked.text):
        yield _Statement(found.start(), found.end(), void=True)


# ---- weaker evidence -------------------------------------------------------------------------------------------------


def _subjects(marked: Marked, *, noun: bool) -> Iterator[_Statement]:
    """ "B is the answer" (`noun`), "B is correct": the option that a predicate is said of."""
    for said in _PREDICATE.finditer(marked.text):
        if bool(said["noun"]) != noun:
            continue
        before = [end.end() for end in _SENTENCE_END.finditer(marked.text, max(0, said.start() - 300), said.start())]
        start = before[-1] if before else max(0, said.start() - 300)
        for named in _named(marked, start, said.start()):
            if named.end == said.start():
                yield _Statement(named.start, said.end(), frozenset({named.key}))


def _named(marked: Marked, start: int, end: int) -> Iterator[Named]:
    """Every place that may name an option: marked letters, texts, and bare letters at the start of a clause."""
    yield from marked.pointed(start, end)
    yield from marked.said(start, end)
    for clause in _CLAUSE_START.finditer(marked.text, start, end):
        if named := marked.letter_at(clause.start()):
            yield named


def _conclusions(marked: Marked) -> Iterator[_Statement]:
    yield from _subjects(marked, noun=False)
    for cue in _CONCLUDED.finditer(marked.text):
        at = cue.end()
        statement = _read(marked, cue.start(), at, letters_only=False) or _read_clause(marked, cue.start(), at)
        if statement is not None and not statement.void:
            yield statement


def _last_sentence(marked: Marked) -> str | None:
    """The option that the last sentence concludes with; a sentence that only mentions one is no evidence."""
    end = len(marked.text.rstrip())
    starts = [found.end() for found in _SENTENCE_END.finditer(marked.text, 0, end) if found.end() < end]
    start = starts[-1] if starts else 0
    if not _MARKED.search(marked.text, start, end) or _ITEM.match(marked.text, start):
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
    before, after = _DENIED.search(text, start, named.start), _WRONG.match(text, named.end)
    return before is not None or after is not None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
