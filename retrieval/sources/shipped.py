"""The small corpus that is part of this package."""

from collections.abc import Iterator
from importlib import resources

from retrieval.fingerprints import Fingerprints
from retrieval.passage import Passage
from retrieval.sources.json_lines import records, unique


def starter() -> Iterator[Passage]:
    """The starter corpus, ordered by file name, then line."""
    seen = Fingerprints()
    folder = resources.files("retrieval") / "starter"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".jsonl"):
            with entry.open("rb") as lines:
                yield from unique(records(lines, f"starter/{entry.name}"), "starter", seen)
