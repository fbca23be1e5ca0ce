"""A sample of a pack: whole questions, so that votes and intervals stay what they are."""

import hashlib
from collections.abc import Sequence

from verifier.packs import LabelledCase


def sample_questions(cases: Sequence[LabelledCase], count: int | None, seed: int = 0) -> list[LabelledCase]:
    """The traces of `count` questions, in the pack's order; all if None or if there are no more.

    Which questions follows from their ids and the seed alone: a larger sample holds the smaller one, and adding questions to
    a pack moves none of the others.
    """
    if count is None:
        return list(cases)
    questions = sorted({labelled.question_id for labelled in cases}, key=lambda id: _draw(id, seed))
    kept = set(questions[:count])
    return [labelled for labelled in cases if labelled.question_id in kept]


def _draw(question: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\n{question}".encode()).digest()
