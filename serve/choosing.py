"""Which of several candidates to keep. Nothing here depends on their order."""

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from serve.choosing_schemas import Selected, SelectRequest, Vote
from verifier.answers import extract_answer
from verifier.selection import UNITS, Strategy, select
from verifier.types import Case, Judgment, Question

_STRATEGIES = {
    "best_of_n": Strategy.BEST,
    "hard": Strategy.HARD,
    "soft": Strategy.SOFT,
    "majority": Strategy.MAJORITY,
}


@dataclass(frozen=True, slots=True)
class _Voter:
    """A candidate that has a say."""

    place: int
    answer: str | None  # None: not readable
    p: float | None  # None: the judge was not asked
    verdict: int | None
    digest: str  # of the content; equal for equal candidates

    @property
    def rank(self) -> tuple[float, str, int]:
        """Best first; the position tells only equal candidates apart."""
        return 0.0 if self.p is None else -self.p, self.digest, self.place


def choose(request: SelectRequest, cases: Sequence[Case], judgments: Sequence[Judgment]) -> Selected:
    """Choose among candidates.

    Args:
        request: what was asked.
        cases: its cases.
        judgments: of the cases, in their order; for majority, which needs none, they may be left out.
    """
    spellings, voters = _spellings(request), list[_Voter]()
    for place, (case, spelling) in enumerate(zip(cases, spellings, strict=True)):
        judgment = judgments[place] if judgments else None
        if judgment is not None and judgment.p_correct is None:
            continue  # it has no say
        answer = _key(spelling, request.question)
        digest = _digest(case.digest, answer or "")
        p, verdict = (None, None) if judgment is None else (judgment.p_correct, judgment.verdict)
        voters.append(_Voter(place, answer, p, verdict, digest))
    votes, winner, tied, fell_back = _count(request, voters)
    written = _written(spellings, request.question)
    no_answers = not any(spellings)
    if winner is not None:
        chosen = min((voter for voter in voters if voter.answer == winner), key=lambda voter: voter.rank)
    elif voters and no_answers and request.strategy == "best_of_n":  # the best trace is the best without an answer, too
        chosen = min(voters, key=lambda voter: voter.rank)
        tied = any(voter.p == chosen.p and voter.digest != chosen.digest for voter in voters)
    else:
        chosen = None
    return Selected(
        strategy=request.strategy,
        answer=None if winner is None else written[winner],
        chosen=None if chosen is None else chosen.place,
        chosen_id=None if chosen is None else cases[chosen.place].id,
        reason="" if chosen else _reason(voters, judgments),
        votes=[
            Vote(
                answer=written[answer],
                weight=weight,
                candidates=[voter.place for voter in voters if voter.answer == answer],
            )
            for answer, weight in votes.items()
        ],
        tied=tied,
        fell_back=fell_back,
        judgments=list(judgments),
        not_judged=sum(judgment.p_correct is None for judgment in judgments),
    )


def _count(request: SelectRequest, voters: Sequence[_Voter]) -> tuple[dict[str, float], str | None, bool, bool]:
    """Shares of the votes, the answer that has most, whether another has as good a claim, and whether the judge had none.

    Among answers that are tied, the one with the larger sum of p is taken; where those are equal too, a hash over question and
    answer decides, which favours no letter.
    """
    selection = select(
        _STRATEGIES[request.strategy],
        [voter.answer for voter in voters],
        [voter.p for voter in voters],
        [voter.verdict for voter in voters],
    )
    possible = {answer: chance for answer, chance in selection.chances.items() if chance > 0}
    if not possible:
        return {}, None, False, False
    belief = dict.fromkeys(possible, 0)  # whole units, so that no order of adding matters
    for voter in voters:
        if voter.answer in belief and voter.p is not None:
            belief[voter.answer] += round(voter.p * UNITS)
    question = request.question.model_dump_json()
    winner = min(possible, key=lambda answer: (-possible[answer], -belief[answer], _digest(question, answer)))
    return selection.weights, winner, len(possible) > 1, selection.fell_back


def _spellings(request: SelectRequest) -> list[str | None]:
    """The answer of each candidate as it is written: an option's key, a text, or None where none can be read."""
    options = request.question.options
    found = list[str | None]()
    for candidate in request.candidates:
        if candidate.answer is None:
            found.append(extract_answer(candidate.trace.render(), options or {}))
        elif options is None or candidate.answer in options:
            found.append(candidate.answer)
        else:
            found.append(extract_answer(candidate.answer, options))
    return found


def _key(spelling: str | None, question: Question) -> str | None:
    """What is counted: options by their keys, texts without case, width and runs of space."""
    if spelling is None or question.options is not None:
        return spelling
    return " ".join(unicodedata.normalize("NFKC", spelling).casefold().split())


def _written(spellings: Sequence[str | None], question: Question) -> dict[str, str]:
    """Each answer that is counted as one of those who gave it wrote it."""
    written = dict[str, str]()
    for spelling in sorted(filter(None, spellings), reverse=True):
        written[_key(spelling, question) or ""] = spelling
    return written


def _reason(voters: Sequence[_Voter], judgments: Sequence[Judgment]) -> str:
    if voters:
        return "no answer can be read from the candidates that have a say"
    statuses = ", ".join(sorted({judgment.status for judgment in judgments}))
    return f"no candidate was judged ({statuses}), and without a judgment nothing is chosen"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
