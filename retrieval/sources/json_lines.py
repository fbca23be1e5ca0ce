"""Passages from JSON lines: one object a line, under the field names that public corpora use."""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from configs import strict_json
from retrieval.fingerprints import Fingerprints, fingerprint
from retrieval.passage import Passage, SourceError

# MedRAG's files carry both `content` (the text) and `contents` (title and text in one), hence the order.
TEXT_FIELDS = ("text", "content", "contents")
ID_FIELDS = ("id", "_id")
LONGEST_LINE = 64 * 2**20  # a passage has a few thousand bytes, a whole book a few million
_OPTIONAL = ("title", "topic", "source", "license", "language", "year")


def jsonl(path: Path | str) -> Iterator[Passage]:
    """Passages of a `.jsonl` or `.jsonl.gz` file; the corpus is named after the file.

    Each line is an object with `id` or `_id` (string or integer), `text`, `content` or `contents` (string), and
    optionally `title`, `topic`, `source`, `license`, `language` (strings), `year` (a number) and `flags` (a list of
    those that a `Passage` knows). Other fields are ignored, and so are blank lines.

    Raises:
        SourceError: unreadable file; a line that is not such an object; an id that occurs twice.
    """
    path = Path(path)
    corpus = path.name.removesuffix(".gz").removesuffix(".jsonl")
    with opened(path) as lines:
        yield from unique(records(bounded_lines(lines, path), str(path)), corpus, Fingerprints())


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file of bytes, decompressed if its name ends in `.gz`; trouble with reading it is a SourceError."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]  # GzipFile reads bytes as any other file
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: cannot be read: {error}") from error


def bounded_lines(file: IO[bytes] | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    """The lines of a file; none is read any further than a line may be long, for a packed one can fill all memory.

    Raises:
        SourceError: names the line that is longer.
    """
    for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            raise SourceError(f"{path}, line {number}: longer than {LONGEST_LINE} bytes; expected one record a line")
        yield line


def records(lines: Iterable[bytes], file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Parse lines into objects, each with the place it comes from.

    Raises:
        SourceError: a line that is not a JSON object in UTF-8.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            record = strict_json.parse(line.decode("utf-8"))
        except ValueError as error:
            raise SourceError(f"{where}: expected a JSON object in UTF-8: {error}") from error
        if not isinstance(record, dict):
            raise SourceError(f"{where}: expected a JSON object, found {type(record).__name__}")
        yield where, record


def unique(found: Iterable[tuple[str, dict[str, Any]]], corpus: str, seen: Fingerprints) -> Iterator[Passage]:
    """Passages of records; `seen` is shared by the files of one corpus, within which an id must occur once.

    Raises:
        SourceError: a record that is no passage; an id that occurs twice.
    """
    for where, record in found:
        passage = passage_of(record, where, corpus)
        if not seen.add(fingerprint(passage.id.encode())):
            raise SourceError(f"{where}, field id: {passage.id!r} occurs a second time")
        yield passage


def passage_of(record: Mapping[str, Any], where: str, corpus: str) -> Passage:
    """One record as a passage; `where` opens the message if it is none.

    Raises:
        SourceError: a field is missing or has the wrong type.
    """
    id_field = _present(record, ID_FIELDS, where)
    identifier = record[id_field]
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)  # PubMed ids are often written as numbers
    text_field = _present(record, TEXT_FIELDS, where)
    values = {"id": identifier, "text": record[text_field], "corpus": corpus}
    # A record without text must not stop the build of millions: as a blank it is dropped there, and counted.
    if values["text"] == "":
        values["text"] = " "
    values |= {field: record[field] for field in _OPTIONAL if record.get(field) is not None}
    year, flags = record.get("year"), record.get("flags")
    if isinstance(year, str) and len(year) <= 18 and year.isascii() and year.isdigit():
        values["year"] = int(year)
    if flags is not None:
        values["flags"] = tuple(flags) if isinstance(flags, list) else flags  # JSON has no tuples
    try:
        return Passage.model_validate(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = {"id": id_field, "text": text_field}.get(str(first["loc"][0]), first["loc"][0])
        raise SourceError(f"{where}, field {field}: {first['msg']}, found {first['input']!r:.80}") from error


def _present(record: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    for name in names:
        if name in record:
            return name
    raise SourceError(f"{where}, field {names[0]}: missing; expected one of {', '.join(names)}")
