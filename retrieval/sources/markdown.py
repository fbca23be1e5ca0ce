"""Cut a Markdown document into passages without tearing tables, code or list items apart."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

MAX_WORDS = 150

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
_RULE = re.compile(r"(?:-{3,}|\*{3,}|_{3,})\s*$")
_BOLD = re.compile(r"\*\*(.+?)\*\*")


@dataclass(frozen=True)
class Section:
    """The passages under one `##` heading; `heading` is empty for what stands before the first one."""

    heading: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class _Block:
    """Lines that belong together. `kind` is one of: text, item, table, code, heading."""

    kind: str
    text: str


def split_markdown(document: str, max_words: int = MAX_WORDS) -> tuple[str, list[Section]]:
    """Return the document's title and its sections.

    A passage holds up to about `max_words` words: a list item or a code block that is longer stays whole, and a table
    that is longer is cut between rows, each part with the table's head.
    """
    title = ""
    sections: list[tuple[str, list[str]]] = [("", [])]
    fenced = False
    for line in document.splitlines():
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else _HEADING.match(line)
        if heading and len(heading[1]) == 1 and not title:
            title = _plain(heading[2])
        elif heading and len(heading[1]) == 2:
            sections.append((_plain(heading[2]), []))
        else:
            sections[-1][1].append(line)
    packed = (
        Section(heading, tuple(_pack(_worded(_blocks(lines, max_words)), max_words))) for heading, lines in sections
    )
    return title, [section for section in packed if section.texts]


def _worded(blocks: Iterable[_Block]) -> Iterator[_Block]:
    """Blocks with something to read: a fence may hold nothing but blank lines, and a bold marker nothing at all."""
    return (block for block in blocks if block.text.strip())


def _blocks(lines: Iterable[str], max_words: int) -> Iterator[_Block]:
    """Group lines into blocks; blank lines and rules separate blocks and vanish."""
    kind, held, fenced, blank = "", list[str](), False, False
    for line in lines:
        stripped = line.strip()
        fence = stripped.startswith("```")
        if fenced:  # everything up to the closing fence is code, whatever it looks like
            fenced = not fence
            if not fence:
                held.append(line)
            continue
        if not stripped or _RULE.match(line):
            blank = True
            continue
        # Indented lines continue a list item even after a blank line; without one, so do wrapped lines.
        in_item = kind == "item" and (line[0].isspace() or not blank) and not _ITEM.match(line)
        found = "item" if in_item else _kind(line, fence)
        fresh = not in_item and (blank or found != kind or found in ("item", "heading", "code"))
        if fresh and held:
            yield from _finish(kind, held, max_words)
            held = []
        kind, blank, fenced = found, False, fence
        if not fence:
            held.append(line)
    if held:
        yield from _finish(kind, held, max_words)


def _kind(line: str, fence: bool) -> str:
    if fence:
        return "code"
    if _HEADING.match(line):
        return "heading"
    if _ITEM.match(line):
        return "item"
    return "table" if line.lstrip().startswith("|") else "text"


def _finish(kind: str, lines: list[str], max_words: int) -> Iterator[_Block]:
    if kind == "heading" and (match := _HEADING.match(lines[0])):
        name = _plain(match[2])
        yield _Block(kind, name if name.endswith((".", ":", "?", "!")) else f"{name}:")
    elif kind == "table":
        for part in _table_parts(lines, max_words):
            yield _Block(kind, _plain("\n".join(part)))
    else:
        yield _Block(kind, _plain("\n".join(lines)))


def _table_parts(rows: list[str], max_words: int) -> Iterator[list[str]]:
    """Cut a table between rows; the first two lines, its head, open every part."""
    head, part = rows[:2], list[str]()
    for row in rows[2:]:
        if part and _words("\n".join([*head, *part, row])) > max_words:
            yield head + part
            part = []
        part.append(row)
    yield head + part


def _pack(blocks: Iterable[_Block], max_words: int) -> list[str]:
    """Join neighbouring units into passages of up to about `max_words`."""
    passages: list[str] = []
    current = ""
    for unit in _units(blocks):
        text = unit[0].text
        for before, block in pairwise(unit):
            text += _separator(before, block) + block.text
        # A new subsection starts a new passage once the current one is worth reading by itself.
        topic_changes = unit[0].kind == "heading" and _words(current) >= max_words // 2
        if current and (topic_changes or _words(current) + _words(text) > max_words):
            passages.append(current)
            current = ""
        joint = "\n" if unit[0].kind == "item" else "\n\n"
        current = f"{current}{joint}{text}" if current else text
    if passages and _words(current) < max_words // 5:  # a crumb says nothing on its own
        passages[-1] += ("\n" if _ITEM.match(current) else "\n\n") + current
    elif current:
        passages.append(current)
    return passages


def _units(blocks: Iterable[_Block]) -> Iterator[list[_Block]]:
    """Blocks that must not be parted: headings and introductions ("…:") go with what they introduce."""
    unit: list[_Block] = []
    for block in blocks:
        unit.append(block)
        if block.kind != "heading" and not (block.kind == "text" and block.text.endswith(":")):
            yield unit
            unit = []
    if unit:
        yield unit


def _separator(before: _Block, after: _Block) -> str:
    return "\n" if before.kind == "heading" or after.kind == "item" else "\n\n"


def _plain(text: str) -> str:
    """Drop bold markers: noise to an encoder and to a reader of plain text."""
    return _BOLD.sub(r"\1", text)


def _words(text: str) -> int:
    return len(text.replace("|", " ").split())
