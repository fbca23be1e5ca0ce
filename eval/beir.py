"""Reads a retrieval benchmark in BEIR's layout: a folder of `corpus.jsonl`, `queries.jsonl` and relevance judgments.

`corpus.jsonl` and `queries.jsonl` may be gzipped; the judgments are `qrels.tsv` or `qrels/test.tsv`: a header line, then query
id, document id and grade between tabs.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from configs import strict_json
from retrieval.clean import likeness
from retrieval.passage import Passage, SourceError
from retrieval.sources import read
from retrieval.sources.json_lines import bounded_lines


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is searched, what is asked, and which answers are good."""

    name: str
    documents: tuple[Passage, ...]
    queries: Mapping[str, str]  # those with a relevant document; text by id, in the order of the file
    grades: Mapping[str, Mapping[str, int]]  # by query, then by document
    unanswerable: (
        int  # queries left out because no document is judged relevant: no ranking of these is better than another
    )
    merged: int  # documents that had the text of an earlier one
    blank: int  # documents that say nothing, which no profile can find; judged ones count as relevant all the same


def read_beir(folder: Path) -> Benchmark:
    """Read a benchmark.

    Documents with the same text, by the cleaner's measure, are merged into the first of them: an index keeps a text once. A
    document that was judged more than once for a query, itself or merged, has the best of its grades. A document that is
    all title has it for its text. So a build that keeps all (`clean.KEEP_ALL`) drops none of the documents.

    Raises:
        SourceError: a file is missing or unreadable, a line is not what it should be, or a judgment names an unknown query or
            document; the message names file, line and field.
    """
    documents, first, blank = _merged(read(str(_file(folder, "corpus.jsonl", "corpus.jsonl.gz"))))
    if not documents:
        raise SourceError(f"{folder}: the corpus has no document")
    queries = _queries(_file(folder, "queries.jsonl", "queries.jsonl.gz"))
    grades = _grades(_file(folder, "qrels.tsv", "qrels/test.tsv"), queries, first)
    answerable = {query: text for query, text in queries.items() if max(grades.get(query, {}).values(), default=0) >= 1}
    if not answerable:
        raise SourceError(f"{folder}: no query has a relevant document")
    return Benchmark(
        name=folder.resolve().name,
        documents=documents,
        queries=answerable,
        grades=grades,
        unanswerable=len(queries) - len(answerable),
        merged=len(first) - len(documents) - blank,
        blank=blank,
    )


def _merged(passages: Iterable[Passage]) -> tuple[tuple[Passage, ...], dict[str, str], int]:
    """The first passage of each text, by the id of every passage the id of the one that stands for it, and how many are blank."""
    kept, first, blank = dict[str, Passage](), dict[str, str](), 0
    for passage in passages:
        if not likeness(passage.text):
            passage = passage.model_copy(update={"title": "", "text": passage.title})  # noqa: PLW2901
        key = likeness(passage.text)
        first[passage.id] = kept.setdefault(key, passage).id if key else passage.id
        blank += not key
    return tuple(kept.values()), first, blank


def _queries(path: Path) -> dict[str, str]:
    queries = dict[str, str]()
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        try:
            record = strict_json.parse(line)
        except ValueError as error:
            raise SourceError(f"{where}: expected a JSON object in UTF-8: {error}") from error
        if not isinstance(record, dict):
            raise SourceError(f"{where}: expected a JSON object, found {type(record).__name__}")
        for field in ("_id", "text"):
            value = record.get(field)
            if not isinstance(value, str) or not value.strip():
                raise SourceError(f"{where}, field {field}: expected a text, found {value!r:.80}")
        if record["_id"] in queries:
            raise SourceError(f"{where}, field _id: {record['_id']!r} is the id of an earlier query as well")
        queries[record["_id"]] = record["text"]
    return queries


def _grades(path: Path, queries: Mapping[str, str], first: Mapping[str, str]) -> dict[str, dict[str, int]]:
    grades = dict[str, dict[str, int]]()
    lines = _lines(path)
    header = next(lines, None)
    if header is not None and _grade(header[1].decode("utf-8", "replace").rstrip("\r\n").split("\t")[-1]) is not None:
        lines = chain([header], lines)  # some collections leave the header out
    for number, line in lines:
        where = f"{path}, line {number}"
        fields = line.decode("utf-8", "replace").rstrip("\r\n").split("\t")
        if len(fields) != 3:
            raise SourceError(
                f"{where}: expected query id, document id and grade between tabs, found {len(fields)} fields"
            )
        query, document, text = fields
        grade = _grade(text)
        if query not in queries:
            raise SourceError(f"{where}, field query-id: {query!r} is not a query")
        if document not in first:
            raise SourceError(f"{where}, field corpus-id: {document!r} is not a document of the corpus")
        if grade is None:
            raise SourceError(f"{where}, field score: expected a whole number, found {text!r:.80}")
        known, stands = grades.setdefault(query, {}), first[document]
        known[stands] = max(grade, known.get(stands, grade))
    return grades


def _grade(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _file(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise SourceError(f"{folder} has no {' or '.join(names)}; is it a benchmark in BEIR's layout?")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, numbered from 1."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from (
                (number, line) for number, line in enumerate(bounded_lines(file, path), start=1) if line.strip()
            )
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: cannot be read: {error}") from error
