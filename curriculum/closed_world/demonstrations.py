"""Whole episodes as a good judge would write them, for a supervised warm-up on the format.

think what to check → search → read → compare claim by claim → sum up the mismatches → answer. The comparison is written out and
summed up because a small model does not learn to compare in its head.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from curriculum.closed_world.facts import Aspect, told
from curriculum.closed_world.passages import aspect_of, monograph, passage_id
from curriculum.closed_world.traces import Reasoned
from curriculum.closed_world.world import World
from retrieval.passage import Passage
from verifier.parse import Tag
from verifier.prompt import render_information
from verifier.transcript import Author
from verifier.types import EvidencePassage

PASSAGES = 3  # shown for a search: the judge's default


class NoEvidenceError(ValueError):
    """The passage that decides is not among those that were found: there is nothing to compare with."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an episode. The policy's are to be learned; the evidence is masked."""

    author: Author
    text: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What follows the prompt, piece by piece."""

    trace: Reasoned
    pieces: tuple[Piece, ...]

    @property
    def policy_text(self) -> str:
        """All that the policy wrote: what is parsed and scored."""
        return "".join(piece.text for piece in self.pieces if piece.author is Author.POLICY)


def query(trace: Reasoned) -> str:
    """What to search for: the drug, the aspect, and what is claimed."""
    return " ".join((trace.drug, _aspect(trace), *(claim.said.attribute for claim in trace.claims)))


def own_evidence(world: World, trace: Reasoned) -> list[EvidencePassage]:
    """What an index would find: the passage that decides among passages of the same drug and of its look-alike.

    It stands first in seven of ten, as in real results; elsewhere in the others, so that a reader looks at the names.
    """
    draw = world.stream(f"evidence {trace.id}")
    aspect, drug, alike = _aspect(trace), trace.drug, world.look_alike(trace.drug)
    other = next(one for one in Aspect if one is not aspect)
    decoys = [monograph(world, name, about) for name, about in ((drug, other), (alike, aspect), (alike, other))]
    shown = draw.sample(decoys, PASSAGES - 1)
    shown.insert(0 if draw.random() < 0.7 else draw.randrange(1, PASSAGES), monograph(world, drug, aspect))
    return ranked(shown)


def ranked(passages: Sequence[Passage]) -> list[EvidencePassage]:
    """Passages as evidence, in the order given; scores only tell that order."""
    return [
        EvidencePassage(**passage.model_dump(), score=1 / rank, rank=rank)
        for rank, passage in enumerate(passages, start=1)
    ]


def demonstrate(trace: Reasoned, found: Sequence[EvidencePassage]) -> Demonstration:
    """The episode for a trace, with what its search found.

    Args:
        found: of `own_evidence`, or of a real index asked `query(trace)`.

    Raises:
        NoEvidenceError: the passage that decides is not there.
    """
    wanted = passage_id(trace.drug, _aspect(trace))
    rank = next((passage.rank for passage in found if passage.id == wanted), None)
    if rank is None:
        raise NoEvidenceError(f"{wanted} is not among the passages for {query(trace)!r}")
    return Demonstration(
        trace,
        (
            Piece(
                Author.POLICY,
                f"{_block(Tag.THINK, _plan(trace))}\n{Tag.SEARCH.opening}{query(trace)}{Tag.SEARCH.closing}",
            ),
            Piece(Author.EVIDENCE, render_information(found)),
            Piece(
                Author.POLICY,
                f"{_block(Tag.THINK, _comparison(trace, rank))}\n{Tag.ANSWER.opening}{trace.label}{Tag.ANSWER.closing}",
            ),
        ),
    )


def _aspect(trace: Reasoned) -> Aspect:
    return aspect_of(trace.claims[0].said.attribute)


def _block(tag: Tag, text: str) -> str:
    return f"{tag.opening}\n{text}\n{tag.closing}"


def _plan(trace: Reasoned) -> str:
    return (
        f"The reasoning is about {trace.drug}. To check: {', '.join(claim.said.attribute for claim in trace.claims)}."
    )


def _comparison(trace: Reasoned, rank: int) -> str:
    return "\n".join(
        (f"Passage [{rank}] is about {trace.drug}.", *_compared(trace), f"Mismatches: {_mismatches(trace)}")
    )


def _compared(trace: Reasoned) -> Iterator[str]:
    for claim in trace.claims:
        outcome = "same" if claim.right else "different"
        yield f"{claim.said.attribute}: trace says {told(claim.said)}, source says {told(claim.true)}, {outcome}"


def _mismatches(trace: Reasoned) -> str:
    return ", ".join(claim.said.attribute for claim in trace.claims if not claim.right) or "none"
