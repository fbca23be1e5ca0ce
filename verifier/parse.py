"""The one parser: a pure state machine over what the policy wrote.

Serving, training and evaluation all read a judge's output with it. It is fed the policy's own text and nothing else, so that
neither the prompt nor a retrieved passage can speak in the policy's name. Inside a block only that block's closing tag means
anything: a verdict that is talked about inside `<think>` is talk.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

PARSER_VERSION = "1"  # part of every judge_id; raise it whenever the same text could be read differently

MAX_ANSWERS = 10  # answer pairs that a well-formed output may hold (Med-TIV, section on the format reward)


class Tag(StrEnum):
    """The tags of the format."""

    THINK = "think"
    SEARCH = "search"
    INFORMATION = "information"
    ANSWER = "answer"

    @property
    def opening(self) -> str:
        return f"<{self.value}>"

    @property
    def closing(self) -> str:
        return f"</{self.value}>"


class Defect(StrEnum):
    """What keeps an output from being well-formed."""

    UNOPENED = "unopened"  # a closing tag that closes nothing
    UNCLOSED = "unclosed"  # a block that never ends
    NESTED = "nested"  # a tag inside a block
    STRAY_TEXT = "stray_text"  # words outside all blocks
    EMPTY_THINK = "empty_think"
    NO_THINK = "no_think"  # a search or an answer without thinking since the last piece of information
    FORGED_INFORMATION = "forged_information"  # the policy wrote an <information> block itself
    NO_ANSWER = "no_answer"
    BAD_LABEL = "bad_label"  # the last answer is not exactly 0 or 1


@dataclass(frozen=True, slots=True)
class Block:
    """A complete block of the policy's text."""

    tag: Tag
    content: str  # between the tags, as written

    @property
    def label(self) -> Literal[0, 1] | None:
        """The label of an answer block: exactly `0` or `1` after trimming, else None."""
        if self.tag is not Tag.ANSWER:
            return None
        return {"0": 0, "1": 1}.get(self.content.strip())  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Parse:
    """How a whole output reads."""

    blocks: tuple[Block, ...]  # complete blocks in order
    defects: frozenset[Defect]
    pairs: dict[Tag, int]  # complete open-close pairs

    @property
    def label(self) -> Literal[0, 1] | None:
        """The verdict: the label of the last complete answer, if it is readable."""
        answers = [block for block in self.blocks if block.tag is Tag.ANSWER]
        return answers[-1].label if answers else None


_TAGS = {text: (tag, text.startswith("</")) for tag in Tag for text in (tag.opening, tag.closing)}
_ANY_TAG = re.compile("|".join(_TAGS))
_PREFIXES = frozenset(text[:length] for text in _TAGS for length in range(1, len(text)))


@dataclass(slots=True)
class Parser:
    """Incremental form of the parser: `feed` the text as it comes, in pieces of any size, then `finish`.

    Any split of a text into pieces gives the same blocks and defects.
    """

    _held: str = ""  # the start of what may become a tag
    _open: Tag | None = None
    _content: list[str] = field(default_factory=list)
    _blocks: list[Block] = field(default_factory=list)
    _defects: set[Defect] = field(default_factory=set)
    _thought: bool = False  # there was thinking since the last piece of information

    @property
    def open_tag(self) -> Tag | None:
        """The block that the text is inside of."""
        return self._open

    def feed(self, text: str) -> tuple[Block, ...]:
        """Read on; returns the blocks that this piece completed."""
        before = len(self._blocks)
        text = self._held + text
        self._held = ""
        position = 0
        for found in _ANY_TAG.finditer(text):
            self._take_text(text[position : found.start()])
            self._take_tag(found.group())
            position = found.end()
        last = text.rfind("<", position)
        if last >= 0 and text[last:] in _PREFIXES:  # the piece ends in the middle of what may be a tag
            self._held = text[last:]
            text = text[:last]
        self._take_text(text[position:])
        return tuple(self._blocks[before:])

    def finish(self) -> Parse:
        """The text is over; says how it read as a whole."""
        self._take_text(self._held)
        self._held = ""
        defects = set(self._defects)
        if self._open is not None:
            defects.add(Defect.UNCLOSED)
        answers = [block for block in self._blocks if block.tag is Tag.ANSWER]
        if not answers:
            defects.add(Defect.NO_ANSWER)
        elif answers[-1].label is None:
            defects.add(Defect.BAD_LABEL)
        pairs = {tag: sum(block.tag is tag for block in self._blocks) for tag in Tag}
        return Parse(tuple(self._blocks), frozenset(defects), pairs)

    def _take_text(self, text: str) -> None:
        if self._open is not None:
            self._content.append(text)
        elif text and not text.isspace():
            self._defects.add(Defect.STRAY_TEXT)

    def _take_tag(self, text: str) -> None:
        tag, closes = _TAGS[text]
        if self._open is None:
            if closes:
                self._defects.add(Defect.UNOPENED)
            else:
                self._open = tag
                self._content = []
        elif closes and tag is self._open:
            self._complete(Block(tag, "".join(self._content)))
        else:
            self._defects.add(Defect.NESTED)
            self._content.append(text)

    def _complete(self, block: Block) -> None:
        self._open = None
        self._content = []
        match block.tag:
            case Tag.THINK if block.content.strip():
                self._thought = True
            case Tag.THINK:
                self._defects.add(Defect.EMPTY_THINK)
            case Tag.SEARCH:
                self._require_thought()
                self._thought = False  # what comes back is new information, to be thought about again
            case Tag.ANSWER:
                self._require_thought()
            case Tag.INFORMATION:
                self._defects.add(Defect.FORGED_INFORMATION)
        self._blocks.append(block)

    def _require_thought(self) -> None:
        if not self._thought:
            self._defects.add(Defect.NO_THINK)


def parse(text: str) -> Parse:
    """Read a whole output at once. `text` is what the policy wrote, all its turns joined, without any evidence."""
    parser = Parser()
    parser.feed(text)
    return parser.finish()
