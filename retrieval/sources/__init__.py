"""Where passages come from: one file for each kind of source, and `read` in front of them.

Readers are generators that hold one passage at a time, and raise `SourceError` at the first thing they cannot read.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from retrieval.passage import Passage, SourceError
from retrieval.sources.digests import open_medicine
from retrieval.sources.json_lines import jsonl
from retrieval.sources.medrag import medrag_pubmed, medrag_textbooks
from retrieval.sources.pubmed_baseline import pubmed_xml
from retrieval.sources.shipped import starter

__all__ = ["KINDS", "SOURCES", "jsonl", "open_medicine", "read", "starter"]


def _ncbi_medcpt(folder: str) -> Iterator[Passage]:
    from retrieval.sources.ncbi_medcpt import NcbiMedcptChunks  # numpy

    return NcbiMedcptChunks(Path(folder)).passages()


#: Corpora that need no place, by name.
SOURCES: Mapping[str, Callable[[], Iterator[Passage]]] = MappingProxyType(
    {"starter": starter, "open-medicine": open_medicine}
)
#: Corpora that lie somewhere, read as `KIND:PLACE`.
KINDS: Mapping[str, Callable[[str], Iterator[Passage]]] = MappingProxyType(
    {
        "medrag-pubmed": medrag_pubmed,
        "medrag-textbooks": medrag_textbooks,
        "pubmed-xml": lambda place: pubmed_xml(Path(place)),
        "ncbi-medcpt": _ncbi_medcpt,
    }
)


def read(name: str) -> Iterator[Passage]:
    """The passages of a corpus.

    Args:
        name: one of `SOURCES`; or `KIND:PLACE`, where the place is a folder (for `pubmed-xml` also one file, for the
            MedRAG kinds also `hub@COMMIT`); or the path of a `.jsonl` or `.jsonl.gz` file.

    Raises:
        SourceError: not such a name, at once; what the reader finds wrong, as it is read.
    """
    if name in SOURCES:
        return SOURCES[name]()
    kind, colon, place = name.partition(":")
    if colon and kind in KINDS:
        if not place:
            raise SourceError(f"corpus {name!r}: say where it is, as {kind}:FOLDER")
        return KINDS[kind](place)
    if name.endswith((".jsonl", ".jsonl.gz")):
        return jsonl(name)
    raise SourceError(
        f"corpus {name!r}: expected {', '.join(SOURCES)}, or the path of a .jsonl or .jsonl.gz file, "
        f"or KIND:FOLDER with one of {', '.join(KINDS)}"
    )
