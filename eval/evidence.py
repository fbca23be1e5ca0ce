"""Whether the passages that judgments show are those of the index."""

from collections.abc import Container, Iterable

from retrieval.passage import Passage
from verifier.types import EvidencePassage, Judgment

Key = tuple[str, str]  # corpus and id


def key(passage: Passage) -> Key:
    """What a passage is known by: ids are unique within a corpus only."""
    return passage.corpus, passage.id


def shown(judgments: Iterable[Judgment]) -> list[EvidencePassage]:
    """All passages that were put before the judge, in order, each time."""
    return [passage for judgment in judgments for search in judgment.searches for passage in search.passages]


def unresolved(judgments: Iterable[Judgment], index: Iterable[Passage]) -> list[Key]:
    """The passages shown that the index does not hold under that id with that title and text, sorted.

    Memory goes with what was shown; the index is read once.
    """
    told: dict[Key, set[tuple[str, str]]] = {}
    for seen in shown(judgments):
        told.setdefault(key(seen), set()).add((seen.title, seen.text))
    for passage in index:
        if key(passage) in told and told[key(passage)] == {(passage.title, passage.text)}:
            del told[key(passage)]
    return sorted(told)


def resolved(judgment: Judgment, missing: Container[Key]) -> int:
    """How many of the passages that it shows are not among the missing."""
    return sum(key(passage) not in missing for passage in shown([judgment]))
