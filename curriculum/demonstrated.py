"""Whole episodes as a good judge would write them, for a supervised warm-up on the format.

think what to check → search → read → compare claim by claim → sum up the mismatches → answer. The comparison is written out and
summed up because a small model does not learn to compare in its head.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from retrieval.passage import Passage
from verifier.parse import Tag
from verifier.prompt import render_information
from verifier.transcript import Author
from verifier.types import EvidencePassage


class NoEvidenceError(ValueError):
    """The passage that decides is not among those that were found: there is nothing to compare with."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an episode. The policy's are to be learned; the evidence is masked."""

    author: Author
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a trace says of something, and what the source says of it."""

    topic: str
    says: str
    source: str

    def __str__(self) -> str:
        outcome = "same" if self.says == self.source else "different"
        return f"{self.topic}: trace says {self.says}, source says {self.source}, {outcome}"


def episode(
    plan: str, query: str, found: Sequence[EvidencePassage], reading: str, comparisons: Iterable[Comparison]
) -> tuple[Piece, ...]:
    """An episode with one search, as what follows the prompt. Its verdict is what the comparisons amount to.

    Args:
        plan: the first thought.
        reading: what opens the second thought: which passage counts.
    """
    compared = list(comparisons)
    mismatches = [one.topic for one in compared if one.says != one.source]
    label: Literal[0, 1] = 0 if mismatches else 1
    thought = "\n".join((reading, *map(str, compared), f"Mismatches: {', '.join(mismatches) or 'none'}"))
    return (
        Piece(Author.POLICY, f"{_thought(plan)}\n{Tag.SEARCH.opening}{query}{Tag.SEARCH.closing}"),
        Piece(Author.EVIDENCE, render_information(found)),
        Piece(Author.POLICY, f"{_thought(thought)}\n{Tag.ANSWER.opening}{label}{Tag.ANSWER.closing}"),
    )


def episode_without_search(plan: str, label: Literal[0, 1]) -> tuple[Piece, ...]:
    """An episode of a judge that has nothing to look things up in: the same form, and a verdict that it cannot know."""
    return (Piece(Author.POLICY, f"{_thought(plan)}\n{Tag.ANSWER.opening}{label}{Tag.ANSWER.closing}"),)


def policy_text(pieces: Iterable[Piece]) -> str:
    """All that the policy wrote: what is parsed and scored."""
    return "".join(piece.text for piece in pieces if piece.author is Author.POLICY)


def piece_rows(pieces: Iterable[Piece]) -> list[Mapping[str, str]]:
    """The pieces as a line of a file holds them."""
    return [{"author": str(piece.author), "text": piece.text} for piece in pieces]


def rank_of(passage_id: str, found: Sequence[EvidencePassage], query: str) -> int:
    """At which place a passage was found.

    Raises:
        NoEvidenceError: nowhere.
    """
    rank = next((passage.rank for passage in found if passage.id == passage_id), None)
    if rank is None:
        raise NoEvidenceError(f"{passage_id} is not among the passages for {query!r}")
    return rank


def ranked(passages: Sequence[Passage]) -> list[EvidencePassage]:
    """Passages as evidence, in the order given; scores only tell that order."""
    return [
        EvidencePassage(**passage.model_dump(), score=1 / rank, rank=rank)
        for rank, passage in enumerate(passages, start=1)
    ]


def _thought(text: str) -> str:
    return f"{Tag.THINK.opening}\n{text}\n{Tag.THINK.closing}"
