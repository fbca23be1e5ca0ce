"""Prompt files and how a case is put into one.

A prompt file is plain text with the fields `{question}` and `{trace}`, each once. Rendering is a single pass: the file is cut
at its fields when it is loaded, so nothing that a question or a trace contains is ever read as part of the template.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from verifier.engines.base import Tokenizer
from verifier.parse import Tag
from verifier.types import Case, EvidencePassage, Question
from verifier.untrusted import neutralise

OPEN_INFORMATION = f"\n{Tag.INFORMATION.opening}\n"
CLOSE_INFORMATION = f"{Tag.INFORMATION.closing}\n"

_FIELD = re.compile(r"\{([A-Za-z_]+)\}")


class PromptError(ValueError):
    """A prompt file that cannot be used; the message names the fix."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt file, cut at its fields."""

    name: str
    head: str  # everything before the first field: the same for every case, so an engine can keep it computed
    fields: tuple[str, ...]  # `question` and `trace` in the file's order
    between: tuple[str, ...]  # literal text after each field
    digest: str  # SHA-256 of the file

    def pieces(self, case: Case) -> list[str]:
        """The rendered case as consecutive texts; the first is `head`. They are tokenised one by one."""
        values = {"question": render_question(case.question), "trace": neutralise(case.trace.render())}
        pieces = [self.head]
        for name, literal in zip(self.fields, self.between, strict=True):
            pieces += [values[name], literal]
        return pieces


def load_prompt(name_or_path: str) -> Prompt:
    """Load a shipped prompt by name (`judge`, `guided`) or any file by path.

    Raises:
        PromptError: no such prompt, or its fields are not exactly one `{question}` and one `{trace}`.
    """
    shipped = resources.files("verifier") / "prompts" / f"{name_or_path}.txt"
    path = Path(name_or_path).expanduser()
    if "/" not in name_or_path and shipped.is_file():
        text = shipped.read_text(encoding="utf-8")
    elif path.is_file():
        text = path.read_text(encoding="utf-8")
    else:
        names = sorted(Path(str(file)).stem for file in (resources.files("verifier") / "prompts").iterdir())
        raise PromptError(f"no prompt named {name_or_path!r} and no such file; shipped prompts: {', '.join(names)}")
    parts = _FIELD.split(text.strip())
    fields = tuple(parts[1::2])
    if sorted(fields) != ["question", "trace"]:
        found = ", ".join(f"{{{name}}}" for name in fields) or "none"
        raise PromptError(f"prompt {name_or_path!r} must hold {{question}} and {{trace}} once each; it holds: {found}")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Prompt(path.stem, parts[0], fields, tuple(parts[2::2]), digest)


def render_question(question: Question) -> str:
    """A question as the judge reads it, with its options on lines of their own."""
    lines = [neutralise(question.text)]
    lines += [f"{letter}. {neutralise(option)}" for letter, option in (question.options or {}).items()]
    return "\n".join(lines)


def render_passage(passage: EvidencePassage) -> str:
    """One passage inside an <information> block."""
    title = neutralise(passage.title).strip()
    return f"[{passage.rank}] {title}\n{neutralise(passage.text).strip()}\n"


def render_information(passages: Sequence[EvidencePassage]) -> str:
    """A whole <information> block, as an episode shows it."""
    return OPEN_INFORMATION + "".join(map(render_passage, passages)) + CLOSE_INFORMATION


def prompt_ids(prompt: Prompt, case: Case, tokenizer: Tokenizer) -> list[int]:
    """Token ids of the whole prompt in the model's chat frame.

    Each piece is tokenised by itself, without special tokens, so that all cases share the ids of `prefix_ids` to the letter.
    """
    before, after = tokenizer.chat_frame()
    ids = list(before)
    for piece in prompt.pieces(case):
        ids += tokenizer.encode(piece)
    return ids + after


def prefix_ids(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    """The ids that every prompt starts with."""
    return [*tokenizer.chat_frame()[0], *tokenizer.encode(prompt.head)]
