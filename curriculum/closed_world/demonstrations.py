"""Demonstrations from a world: an episode for each of its traces."""

from collections.abc import Sequence

from curriculum.closed_world.facts import Aspect, told
from curriculum.closed_world.passages import aspect_of, monograph, passage_id
from curriculum.closed_world.traces import Reasoned
from curriculum.closed_world.world import World
from curriculum.demonstrated import Comparison, Piece, episode, episode_without_search, rank_of, ranked
from verifier.types import EvidencePassage


def query(trace: Reasoned) -> str:
    """What to search for: the drug, the aspect, and what is claimed."""
    return " ".join((trace.drug, _aspect(trace), *(claim.said.attribute for claim in trace.claims)))


def own_evidence(world: World, trace: Reasoned) -> list[EvidencePassage]:
    """What an index would find: the passage that decides among passages of the same drug and of its look-alike.

    It stands first in seven of ten, elsewhere in the others, so that a reader looks at the names.
    """
    draw = world.stream(f"evidence {trace.id}")
    aspect, drug, alike = _aspect(trace), trace.drug, world.look_alike(trace.drug)
    other = next(one for one in Aspect if one is not aspect)
    decoys = [monograph(world, name, about) for name, about in ((drug, other), (alike, aspect), (alike, other))]
    count = world.recipe.passages
    shown = draw.sample(decoys, count - 1)
    first = count == 1 or draw.random() < 0.7
    shown.insert(0 if first else draw.randrange(1, count), monograph(world, drug, aspect))
    return ranked(shown)


def demonstrate(trace: Reasoned, found: Sequence[EvidencePassage]) -> tuple[Piece, ...]:
    """The episode for a trace.

    Args:
        found: by its search: of `own_evidence`, or of a real index that was asked `query(trace)`.

    Raises:
        NoEvidenceError: the passage that decides is not there.
    """
    rank = rank_of(passage_id(trace.drug, _aspect(trace)), found, query(trace))
    return episode(
        _plan(trace),
        query(trace),
        found,
        f"Passage [{rank}] is about {trace.drug}.",
        (Comparison(claim.said.attribute, told(claim.said), told(claim.true)) for claim in trace.claims),
    )


def demonstrate_without_search(trace: Reasoned) -> tuple[Piece, ...]:
    """The same up to the search, and the verdict at once: what a judge without the tool is warmed up with, to compare."""
    return episode_without_search(_plan(trace), trace.label)


def _plan(trace: Reasoned) -> str:
    topics = ", ".join(claim.said.attribute for claim in trace.claims)
    return f"The reasoning is about {trace.drug}. To check: {topics}."


def _aspect(trace: Reasoned) -> Aspect:
    return aspect_of(trace.claims[0].said.attribute)
