"""An engine that says what it is told to. For tests of everything around a model.

It works on bytes, so its text and its token ids correspond one to one, and it keeps the promises of the protocol: stop strings,
limits, watched tokens, one generation at a time.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, MutableSequence
from collections.abc import Sequence as Ids
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate, Sequence

_END = 256  # the end-of-text token, one past the bytes

#: Given the whole text so far, what the model writes next: text, or an error to raise. Text that does not reach a stop string
#: ends with end-of-text.
Script = Callable[[str], str | EngineError]
#: Given the text before a position, the probabilities of certain next characters; the rest of the mass goes to what is written.
Beliefs = Callable[[str], dict[str, float]]


class ByteTokenizer:
    """One token a byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Ids[int]) -> str:
        return _spelt(ids).decode(errors="replace")

    def chat_frame(self) -> tuple[list[int], list[int]]:
        return [], self.encode("\n")


def _spelt(ids: Ids[int]) -> bytes:
    try:
        return bytes(ids)
    except ValueError:  # an end of text among them
        return bytes(token for token in ids if token < _END)


@dataclass(slots=True)
class _ScriptedSequence:
    engine: "ScriptedEngine"
    closed: bool = False

    async def generate(self, request: Generate) -> Completion:
        if self.closed:
            raise EngineError("the sequence is closed")
        return await self.engine.answer(request)

    def close(self) -> None:
        self.closed = True


def _undecided(_: str) -> dict[str, float]:
    return {}


@dataclass(slots=True)
class ScriptedEngine:
    """Implements `base.Engine` from a script and, for confidence, beliefs about next characters."""

    script: Script
    beliefs: Beliefs = _undecided
    max_context: int = 100_000
    max_sequences: int = 64
    delay_s: float = 0.0
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    requests: MutableSequence[Generate] = field(
        default_factory=list
    )  # all there ever were; long runs give a short deque
    sequences: MutableSequence[_ScriptedSequence] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, count: int = 1) -> AsyncIterator[list[Sequence]]:
        opened = [_ScriptedSequence(self) for _ in range(count)]
        self.sequences += opened
        try:
            yield list(opened)
        finally:
            for sequence in opened:
                sequence.close()

    async def preload(self, ids: Ids[int]) -> None:
        """Nothing to compute."""

    def describe(self) -> dict[str, str | int | float]:
        return {"engine": "scripted"}

    async def aclose(self) -> None:
        """Nothing to close."""

    async def answer(self, request: Generate) -> Completion:
        self.requests.append(request)
        await asyncio.sleep(self.delay_s)
        if len(request.ids) >= self.max_context:
            raise ContextFullError("no room")
        text = self.tokenizer.decode(request.ids)
        says = self.script(text)
        if isinstance(says, EngineError):
            raise says
        ends = [says.index(stop) + len(stop) for stop in request.stop if stop in says]
        ids = [*self.tokenizer.encode(says[: min(ends)])] if ends else [*self.tokenizer.encode(says), _END]
        finish = Finish.STOP if ends else Finish.END
        bound = min(request.max_tokens, self.max_context - len(request.ids))
        if len(ids) > bound:
            finish = Finish.LENGTH if bound == request.max_tokens else Finish.CONTEXT
            ids = ids[:bound]
        watched = self._watch(request, text, ids) if request.watch else ((),) * len(ids)
        return Completion(tuple(ids), (0.0,) * len(ids), watched, finish, prefilled=len(request.ids))

    def _watch(self, request: Generate, before: str, written: list[int]) -> tuple[tuple[float, ...], ...]:
        unknown = (-math.inf,) * len(request.watch)
        watched = list[tuple[float, ...]]()
        for position, token in enumerate(written):
            believed = self.beliefs(before)
            watched.append(self._reported(request.watch, believed) if believed else unknown)
            if token < 128:  # a character by itself
                before += chr(token)
            elif token != _END:
                before = self.tokenizer.decode([*request.ids, *written[: position + 1]])
        return tuple(watched)

    def _reported(self, watch: tuple[int, ...], believed: dict[str, float]) -> tuple[float, ...]:
        known = {self.tokenizer.encode(character)[0]: p for character, p in believed.items() if p}
        return tuple(math.log(known[token]) if token in known else -math.inf for token in watch)
