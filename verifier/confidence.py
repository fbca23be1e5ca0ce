"""How sure the judge is: p(1) at the verdict position, read from token ids.

Confidence of a trace is the softmax over the logits of the tokens `1` and `0` where the verdict stands (Med-TIV, test-time
search). A tokenizer may write a digit in more than one way (`1`, ` 1`); all of them count for their label, so that
`<answer> 1</answer>` is read as well as `<answer>1</answer>`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from verifier.engines.base import EngineError, Tokenizer

_LEADS = ("", " ", "\n", ">")  # what may stand before the digit and be merged with it


@dataclass(frozen=True, slots=True)
class LabelTokens:
    """Token ids that spell the two labels."""

    zero: tuple[int, ...]
    one: tuple[int, ...]

    @property
    def watch(self) -> tuple[int, ...]:
        """The ids whose log-probabilities an engine has to report."""
        return self.zero + self.one

    def label(self, token: int) -> int | None:
        """The label that a token spells, if it spells one."""
        return 1 if token in self.one else 0 if token in self.zero else None


@dataclass(frozen=True, slots=True)
class Confidence:
    """What the verdict position says."""

    p_correct: float  # p(1) / (p(0) + p(1))
    label_mass: float  # p(0) + p(1)


def label_tokens(tokenizer: Tokenizer) -> LabelTokens:
    """Find the tokens that spell `0` and `1`.

    Raises:
        EngineError: the tokenizer has no token of its own for a label.
    """

    def spellings(digit: str) -> tuple[int, ...]:
        last = (tokenizer.encode(lead + digit)[-1] for lead in _LEADS)
        return tuple(sorted({token for token in last if tokenizer.decode([token]).strip() == digit}))

    found = LabelTokens(spellings("0"), spellings("1"))
    if not (found.zero and found.one):
        raise EngineError("the tokenizer has no single token for the labels 0 and 1, so no confidence can be read")
    return found


def read_confidence(watched: Sequence[float], labels: LabelTokens) -> Confidence | None:
    """Confidence from the log-probabilities of `labels.watch` at the verdict position.

    Returns None if a label was not reported in any spelling (-inf): what is unknown is not taken for improbable.

    Raises:
        EngineError: a log-probability is NaN or infinite.
    """
    if any(math.isnan(value) or value == math.inf for value in watched):
        raise EngineError("the engine gave NaN or infinity as a log-probability")
    zeros, ones = watched[: len(labels.zero)], watched[len(labels.zero) :]
    zero, one = sum(map(math.exp, zeros)), sum(map(math.exp, ones))
    if max(zeros) == -math.inf or max(ones) == -math.inf or zero + one == 0:
        return None
    return Confidence(one / (zero + one), min(zero + one, 1.0))
