"""The corpora of MedRAG: PubMed abstracts and textbooks, from a folder or from the hub.

Both are JSON lines under `chunk/` with `id`, `title`, `content` (the text), `contents` (title and text in one) and, for
PubMed, `PMID`. They carry no language, year or retraction: those are in NLM's own files, see `pubmed_baseline`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from retrieval.passage import Passage, SourceError
from retrieval.sources.hub import streamed
from retrieval.sources.json_lines import bounded_lines, opened, passage_of, records

PUBMED, TEXTBOOKS = "medrag-pubmed", "medrag-textbooks"
_REPOSITORIES = {PUBMED: "MedRAG/pubmed", TEXTBOOKS: "MedRAG/textbooks"}
_HUB = "hub"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NUMBER = re.compile(r"\d+")


def medrag_pubmed(place: str) -> Iterator[Passage]:
    """MedRAG's PubMed: see `_medrag`."""
    return _medrag(PUBMED, place)


def medrag_textbooks(place: str) -> Iterator[Passage]:
    """MedRAG's textbooks: see `_medrag`."""
    return _medrag(TEXTBOOKS, place)


def medrag_passages(found: Iterable[tuple[str, Mapping[str, Any]]], corpus: str) -> Iterator[Passage]:
    """Rows of MedRAG's layout, each with the place it comes from, as passages.

    Ids are checked for being unique when the corpus is cleaned, not here: it has 24 million of them.

    Raises:
        SourceError: a row that has not that layout.
    """
    for where, row in found:
        yield passage_of({**row, "source": _source(row, where, corpus)}, where, corpus)


def _source(row: Mapping[str, Any], where: str, corpus: str) -> str:
    if corpus == TEXTBOOKS:
        return f"MedRAG textbooks: {str(row.get('title', '')).replace('_', ' ')}"
    pmid = row.get("PMID")
    if isinstance(pmid, bool) or not isinstance(pmid, int | str) or not str(pmid).isdecimal():
        raise SourceError(f"{where}, field PMID: expected a number, found {pmid!r}")
    return f"PubMed {pmid}"


def _medrag(corpus: str, place: str) -> Iterator[Passage]:
    """Read a folder that holds `chunk/*.jsonl`, or the hub at a pinned commit.

    Args:
        place: a folder, or `hub@COMMIT` with a full commit hash.

    Raises:
        SourceError: no such files; no commit, at once; trouble with the hub; a row of another layout.
    """
    hub, _, commit = place.partition("@")
    if hub == _HUB:
        if not _COMMIT.fullmatch(commit):
            raise SourceError(
                f"corpus {corpus}: the hub is read only at a pinned commit; look up the one you mean on the page of "
                f"{_REPOSITORIES[corpus]} and give all 40 digits, as {corpus}:{_HUB}@COMMIT"
            )
        return medrag_passages(_hub_rows(_REPOSITORIES[corpus], commit), corpus)
    return medrag_passages(_folder_rows(Path(place), corpus), corpus)


def _folder_rows(folder: Path, corpus: str) -> Iterator[tuple[str, dict[str, Any]]]:
    chunks = folder / "chunk" if (folder / "chunk").is_dir() else folder
    paths = sorted([*chunks.glob("*.jsonl"), *chunks.glob("*.jsonl.gz")], key=_natural)
    if not paths:
        raise SourceError(f"corpus {corpus}: {folder} has no chunk/*.jsonl; expected a copy of {_REPOSITORIES[corpus]}")
    for path in paths:
        with opened(path) as lines:
            yield from records(bounded_lines(lines, path), str(path))


def _hub_rows(repository: str, commit: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        rows = streamed(repository, revision=commit, data_files="chunk/*.jsonl")
        for number, row in enumerate(rows, start=1):
            yield f"{repository}@{commit[:12]}, row {number}", row
    except SourceError as error:
        raise SourceError(f"{error}; download it and give its folder instead") from error


def _natural(path: Path) -> tuple[list[int], str]:
    """Order pubmed23n2 before pubmed23n10."""
    return [int(number) for number in _NUMBER.findall(path.name)], path.name
