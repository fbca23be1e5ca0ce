"""What a judge is trained on: a case, and whether its trace is right."""

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from verifier.types import Case, Question

Label = Literal[0, 1]


@dataclass(frozen=True, slots=True)
class Example:
    """An episode's input and its gold label."""

    case: Case
    label: Label  # 1: the trace is right
    question_id: str  # names the question within its source
    source: str  # name of the source in the training config
    generator: str = ""  # who wrote the trace
    answer: str | None = None  # the right option, or its text: compared with evaluation sets, never shown to a judge

    @property
    def question(self) -> tuple[str, str]:
        """Names the question in the whole pool: two sources may use one id for different questions."""
        return self.source, self.question_id


def question_text(question: Question) -> str:
    """A question and its options as they are compared: without differences of spacing and of Unicode's forms."""
    return _plain(_parts(question))


def text_key(case: Case) -> str:
    """SHA-256 of what a judge is shown: equal for cases with the same question, options and trace."""
    text = _plain([*_parts(case.question), case.trace.render()])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parts(question: Question) -> list[str]:
    return [question.text, *(f"{letter}) {text}" for letter, text in sorted((question.options or {}).items()))]


def _plain(parts: Iterable[str]) -> str:
    # Joined first, by what is no space: one pass over the text, and no part can pass for two.
    return " ".join(unicodedata.normalize("NFKC", "\0".join(parts)).split())
