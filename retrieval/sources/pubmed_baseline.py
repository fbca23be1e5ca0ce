"""PubMed as NLM publishes it: the XML of the yearly baseline and of the daily update files.

An article may occur in many files, and the last occurrence is what PubMed says now. Files are therefore read from the
newest to the oldest, and the first occurrence of a PMID is the one that counts; a deletion counts as an occurrence. Within
a file the highest version counts, and of several the last: each file is parsed twice, first for where the PMIDs stand.
Memory: a few articles, the PMIDs of one file, and one bit for each PMID there is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser
from xml.parsers import expat

from retrieval.passage import Flag, Passage, SourceError
from retrieval.sources.json_lines import opened
from retrieval.sources.pubmed_markup import plain_text

CORPUS = "pubmed"
_ROOT, _ARTICLE, _DELETIONS = "PubmedArticleSet", "PubmedArticle", "DeleteCitation"
_LARGEST_PMID = 10**9 - 1
_BLOCK = 1 << 16

_FLAG_OF_TYPE: dict[str, Flag] = {"D016441": "retracted", "D016440": "retraction_notice"}
_FLAG_OF_COMMENT: dict[str, Flag] = {
    "RetractionIn": "retracted",
    "RetractedandRepublishedIn": "retracted",
    "ExpressionOfConcernIn": "expression_of_concern",
}
# The one library that says how it marks what it withdraws: a record of its own, with this title and the former abstract.
_COCHRANE, _WITHDRAWN = "1469-493X", "WITHDRAWN:"


def pubmed_xml(place: Path) -> Iterator[Passage]:
    """The articles of `pubmed*.xml` and `.xml.gz` files, newest file first; those without an abstract have a blank text.

    Args:
        place: one file, or a folder. File names rise with time, as NLM's do (pubmed25n1275.xml.gz).

    Raises:
        SourceError: no such files; one that is truncated, not XML, declares entities, or is not an article set.
    """
    paths = [place] if place.is_file() else sorted([*place.glob("pubmed*.xml"), *place.glob("pubmed*.xml.gz")])
    if not paths:
        raise SourceError(f"corpus pubmed-xml: {place} is no file and has no pubmed*.xml or pubmed*.xml.gz")
    seen = _Bits()
    for path in reversed(paths):
        last = _last_occurrences(path)
        for number, article in _elements(path):
            if article.tag != _ARTICLE:
                continue
            pmid, _ = _identity(article, path)
            if last.get(pmid) == number and pmid not in seen:
                try:
                    passage = _passage(article, pmid)
                except RecursionError as error:
                    raise SourceError(f"{path}, PubMed {pmid}: its elements are nested too deeply") from error
                yield passage
        for pmid in last:
            seen.add(pmid)


class _Bits:
    """A set of small whole numbers, one bit each: 40 million PMIDs are 5 MB."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, number: int) -> None:
        if number // 8 >= len(self._bytes):
            self._bytes.extend(bytes(number // 8 + 1 - len(self._bytes)))
        self._bytes[number // 8] |= 1 << number % 8

    def __contains__(self, number: int) -> bool:
        return number // 8 < len(self._bytes) and bool(self._bytes[number // 8] >> number % 8 & 1)


def _last_occurrences(path: Path) -> dict[int, int]:
    """For each PMID of the file the number of its element that counts; -1: deleted."""
    best: dict[int, tuple[int, int]] = {}
    deleted: set[int] = set()
    for number, element in _elements(path):
        if element.tag == _DELETIONS:
            deleted.update(_pmid(entry, path) for entry in element.iter("PMID"))
            continue
        pmid, version = _identity(element, path)
        best[pmid] = max(best.get(pmid, (0, 0)), (version, number))
    return {pmid: number for pmid, (_, number) in best.items()} | dict.fromkeys(deleted, -1)


def _elements(path: Path) -> Iterator[tuple[int, Element]]:
    """The articles and lists of deletions of a file, numbered; each is let go once the next are read.

    The tree is built without a call into Python for each of its elements, of which a baseline file has ten million: after
    each block of the file, what is finished is taken out.
    """
    with opened(path) as file:
        _refuse_entities(file, path)
    builder = TreeBuilder()
    top = builder.start("top", {})  # the document will be its only child
    parser = XMLParser(target=builder)  # noqa: S314 - entities were refused just above
    number = 0
    with opened(path) as file:
        while True:
            block = file.read(_BLOCK)
            try:
                if block:
                    parser.feed(block)
                else:
                    parser.close()
            except (ParseError, LookupError, ValueError) as error:  # the last two: of an encoding that it declares
                raise SourceError(f"{path}: not well-formed XML, or cut off: {error}") from error
            for root in top:
                if root.tag != _ROOT:
                    raise SourceError(f"{path}: expected a {_ROOT}, found a {root.tag}")
                finished = list(root if not block else root[:-1])  # the last one may lack its end
                del root[: len(finished)]
                for number, element in enumerate(finished, start=number + 1):  # noqa: B020 - it counts on
                    if element.tag not in (_ARTICLE, _DELETIONS):
                        raise SourceError(f"{path}: element {number} is a {element.tag}, which is not of the baseline")
                    yield number, element
            if not block:
                return


def _refuse_entities(file: IO[bytes], path: Path) -> None:
    """Refuse a file that declares entities, such as those that expand to gigabytes, before anything is expanded.

    They can be declared only before the first element, so no more than that is read here. NLM's files declare none; the
    DTD that they name is never fetched.
    """
    parser = expat.ParserCreate()
    started = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal started
        started = True

    def declared(name: str, *rest: object) -> None:
        raise SourceError(f"{path}: declares the entity {name!r}; PubMed's files declare none, so it is refused")

    parser.StartElementHandler = start
    parser.EntityDeclHandler = declared
    try:
        while not started:
            block = file.read(_BLOCK)
            parser.Parse(block, not block)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: of an encoding that it declares
        if not started:
            raise SourceError(f"{path}: not well-formed XML, or cut off: {error}") from error


def _identity(article: Element, path: Path) -> tuple[int, int]:
    """The article's PMID and version."""
    entry = article.find("MedlineCitation/PMID")
    if entry is None:
        raise SourceError(f"{path}: an article has no MedlineCitation/PMID")
    version = entry.get("Version", "1")
    return _pmid(entry, path), int(version) if version.isdecimal() and len(version) <= 9 else 1


def _pmid(entry: Element, path: Path) -> int:
    digits = (entry.text or "").strip()
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits[:12]) <= _LARGEST_PMID):
        raise SourceError(f"{path}: expected a PMID, found {digits!r:.80}")
    return int(digits)


def _passage(element: Element, pmid: int) -> Passage:
    citation = element.find("MedlineCitation")
    article = None if citation is None else citation.find("Article")
    if citation is None or article is None:
        raise SourceError(f"PubMed {pmid}: has no Article")
    year = _year(article)
    journal = plain_text(article.find("Journal/Title"))
    return Passage(
        id=str(pmid),
        title=plain_text(article.find("ArticleTitle")) or plain_text(article.find("VernacularTitle")),
        text=_abstract(article) or " ",  # a blank one is dropped when the corpus is cleaned, and counted
        source=". ".join(part for part in (f"PubMed {pmid}", journal, str(year or "")) if part),
        corpus=CORPUS,
        license=plain_text(article.find("Abstract/CopyrightInformation")),
        language=_language(article),
        year=year,
        flags=_flags(citation, article),
    )


def _abstract(article: Element) -> str:
    """The abstract; if it is structured, a line for each part, behind its label."""
    parts = []
    for part in article.iterfind("Abstract/AbstractText"):
        label, text = (part.get("Label") or "").strip().rstrip(":"), plain_text(part)
        if text:
            parts.append(f"{label}: {text}" if label and label.upper() != "UNLABELLED" else text)
    return "\n".join(parts)


def _language(article: Element) -> str:
    """The language of the text, if the article's own tells it: that of an article that is all in English.

    NLM declares the language of the article, but `Abstract` holds the English abstract that most articles in other
    languages have too. What those hold is left undeclared, for the text itself to show.
    """
    languages = {(entry.text or "").strip() for entry in article.iterfind("Language")}
    return "eng" if languages == {"eng"} else ""


def _year(article: Element) -> int | None:
    for place in ("Journal/JournalIssue/PubDate/Year", "Journal/JournalIssue/PubDate/MedlineDate", "ArticleDate/Year"):
        first = (article.findtext(place) or "").strip()[:4]  # a MedlineDate is such as `1998 Dec-1999 Jan`
        if len(first) == 4 and first.isascii() and first.isdigit():
            return int(first)
    return None


def _flags(citation: Element, article: Element) -> tuple[Flag, ...]:
    """What NLM declares about the article, and Cochrane about its reviews; no other journal's title is evidence of either."""
    types = [entry.get("UI", "") for entry in article.iterfind("PublicationTypeList/PublicationType")]
    comments = [entry.get("RefType", "") for entry in citation.iterfind("CommentsCorrectionsList/CommentsCorrections")]
    found = [_FLAG_OF_TYPE.get(ui) for ui in types] + [_FLAG_OF_COMMENT.get(kind) for kind in comments]
    if article.findtext("Journal/ISSN") == _COCHRANE and plain_text(article.find("ArticleTitle")).startswith(
        _WITHDRAWN
    ):
        found.append("withdrawn")
    return tuple(dict.fromkeys(flag for flag in found if flag))
