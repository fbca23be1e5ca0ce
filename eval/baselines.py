"""What a judge has to beat: opinions about traces that cost nothing, in the columns of a judge.

None of them looks at the gold answer. Each gives p [N] in 0 … 1 for the traces of `Columns`, in their order.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eval.columns import Columns
from eval.metrics import Floats, Labels

Texts = Sequence[str]


def random(columns: Columns, _: Texts) -> Floats:
    """A number that follows from the trace's id alone, hence the same in any order and any sample of the pack."""
    digests = (hashlib.sha256(trace.encode()).digest() for trace in columns.traces)
    return np.asarray([int.from_bytes(digest[:8]) / 2**64 for digest in digests], dtype=np.float64)


def length(columns: Columns, texts: Texts) -> Floats:
    """The share of traces that are longer, ties counting half: those who ramble are trusted least."""
    lengths = np.asarray([len(text) for text in texts], dtype=np.int64)
    _, inverse, counts = np.unique(lengths, return_inverse=True, return_counts=True)
    shorter_or_half = np.cumsum(counts) - counts / 2
    return 1 - shorter_or_half[inverse] / max(len(columns), 1)


def self_consistency(columns: Columns, _: Texts) -> Floats:
    """The share of the question's readable traces that end with the same answer, this one included; 0 if it is unreadable."""
    same = Counter(zip(columns.questions, columns.answers, strict=True))
    readable = Counter(
        question for question, answer in zip(columns.questions, columns.answers, strict=True) if answer is not None
    )
    return _by_answer(columns, lambda question, answer: same[question, answer] / readable[question])


def answer_frequency(columns: Columns, _: Texts) -> Floats:
    """The share of all readable traces, of any question, that end with the same letter; 0 if it is unreadable."""
    letters = Counter(answer for answer in columns.answers if answer is not None)
    total = letters.total()
    return _by_answer(columns, lambda _, answer: letters[answer] / total)


def _by_answer(columns: Columns, share: Callable[[str, str], float]) -> Floats:
    pairs = zip(columns.questions, columns.answers, strict=True)
    return np.asarray(
        [0.0 if answer is None else share(question, answer) for question, answer in pairs], dtype=np.float64
    )


def verdicts(p: Floats) -> Labels:
    """What a baseline calls right: the traces that it gives more than a half."""
    return (p > 0.5).astype(np.int64)


RANDOM = "random"
BASELINES: Mapping[str, Callable[[Columns, Texts], Floats]] = {
    RANDOM: random,
    "length": length,
    "self-consistency": self_consistency,
    "answer frequency": answer_frequency,
}
