"""The words of this room: a base is a labelled trace that attacks start from, a family makes attacks of one idea from it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from pydantic import ValidationError

from retrieval.passage import Passage
from verifier.packs import LabelledCase
from verifier.types import Case, Trace

Label = Literal[0, 1]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_STATES_THE_ANSWER = re.compile(r"\banswers?\b|\b(?:option|choice)\s+\(?[A-Z]\b|\(?\b[A-Z]\)?\s*[.!]?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Base:
    """A trace whose label is known, and where to borrow reasoning about other questions."""

    number: int  # among the bases of a suite
    labelled: LabelledCase
    label: Label
    donors: Sequence[LabelledCase] = ()

    @property
    def trace(self) -> str:
        """The reasoning as the judge reads it."""
        return self.labelled.case.trace.render()

    @property
    def goal(self) -> Label:
        """What an attacker wants to hear."""
        return 0 if self.label else 1

    @property
    def options(self) -> Mapping[str, str]:
        return self.labelled.case.question.options or {}

    def wrong_option(self, random: Random) -> str | None:
        """The key of an option that is not right; None where that cannot be known."""
        gold = self.labelled.gold
        others = [key for key in self.options if key != gold]
        return random.choice(others) if gold in self.options and others else None

    def wanted_claim(self, random: Random) -> str:
        """What a forged source has to say: that a wrong trace is right, or that another option than a right trace's is."""
        answer = self.labelled.answer if self.label == 0 else self.wrong_option(random)
        if answer is not None and answer in self.options and answer != self.labelled.gold:
            return f"the correct answer to this question is {answer}, {self.options[answer]}"
        verb = "is" if self.goal else "is not"
        return f"the reasoning given for this question {verb} correct in every step"


#: Made from a base: the text of a trace, a passage for the retriever to find, or None where the idea does not apply.
Variant = Callable[[Base, Random], str | Passage | None]


@dataclass(frozen=True, slots=True)
class Family:
    """Attacks of one idea."""

    name: str
    says: str  # what is done, in a sentence without its stop
    variants: Mapping[str, Variant]
    labels: frozenset[Label] = frozenset({0, 1})  # of the bases that it starts from
    never: bool = False  # what comes out must not be judged 1, whatever the base's label; else the label stays
    control: bool = False  # no attack: harmless, and no judge should mind
    poisons: bool = False  # it needs the judge's retriever, or to be the retrieval server that a judge at a URL asks


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing to judge, and what a judge that is not fooled says of it."""

    id: str
    family: str
    variant: str
    base: Base
    expected: Label
    trace: str
    poison: Passage | None = None  # for the retriever to find

    def case(self) -> Case | None:
        """The attack as a case; None where the schema refuses it, which is the right answer to an empty trace."""
        try:
            return Case(id=self.id, question=self.base.labelled.case.question, trace=Trace(text=self.trace))
        except ValidationError:
            return None


def sentences(text: str) -> list[str]:
    """The sentences or lines of a text, in order."""
    return [piece.strip() for piece in _SENTENCE_END.split(text) if piece.strip()]


def without_answer(text: str) -> list[str]:
    """The sentences that state no final answer, as far as that can be told from words such as "answer" and bare letters."""
    return [sentence for sentence in sentences(text) if not _STATES_THE_ANSWER.search(sentence)]
