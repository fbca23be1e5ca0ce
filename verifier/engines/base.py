"""The one protocol that every engine speaks: token ids in, token ids and log-probabilities out.

An episode opens a `Sequence`, asks it to continue growing lists of token ids, and closes it. What the sequence has seen
before is not computed again. Ids are never turned into text and back between turns.
"""

from collections.abc import Sequence as Ids
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class EngineError(Exception):
    """The engine could not do what was asked; the message says what and, where known, the fix."""


class ContextFullError(EngineError):
    """The ids do not fit into the context together with at least one new token."""


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"  # a stop string was written
    END = "end"  # the model's own end-of-text token
    LENGTH = "length"  # max_tokens reached
    CONTEXT = "context"  # no room left


@dataclass(frozen=True, slots=True)
class Generate:
    """One generation: continue `ids`."""

    ids: Ids[int]  # the whole text so far, prompt included
    max_tokens: int
    stop: tuple[str, ...] = ()  # generation ends right after the token that completes one of these
    watch: tuple[int, ...] = ()  # token ids whose log-probability is reported at every new position
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """What came of a `Generate`."""

    ids: tuple[int, ...]  # [n] new tokens; an end-of-text token is included
    # [n] with which each token was drawn, temperature and nucleus included (greedy: of the model itself); NaN from engines that
    # cannot tell at any other temperature than 1 or nucleus than the whole
    logprobs: tuple[float, ...]
    watched: tuple[tuple[float, ...], ...]  # [n][len(watch)] of the model itself: full vocabulary, temperature 1
    finish: Finish
    prefilled: int = 0  # tokens that had to be computed before the first new one
    cached: int = 0  # tokens taken from the cache


class Tokenizer(Protocol):
    """The part of a tokenizer that the judge needs. Special tokens are never read out of text."""

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: no special token is added, and a special token's spelling in the text stays plain text."""
        ...

    def decode(self, ids: Ids[int]) -> str:
        """Text of ids; special tokens are left out, spaces are kept as they are."""
        ...

    def chat_frame(self) -> tuple[list[int], list[int]]:
        """Ids before and after the user's message that make the model answer as the assistant."""
        ...


class Sequence(Protocol):
    """One episode's place in the engine."""

    async def generate(self, request: Generate) -> Completion:
        """Continue `request.ids`. Whatever prefix of them this sequence has seen is not computed again.

        Raises:
            ContextFullError: no room for a new token.
            EngineError: the engine failed.
        """
        ...

    def close(self) -> None:
        """Give the place back. Idempotent; a generation in flight is abandoned."""
        ...


class Engine(Protocol):
    """Something that runs a language model."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def max_context(self) -> int:
        """Tokens an episode may hold, prompt and evidence included."""
        ...

    @property
    def max_sequences(self) -> int:
        """Episodes that can be open at once; more wait for a place."""
        ...

    def open(self, count: int = 1) -> AbstractAsyncContextManager[list[Sequence]]:
        """Open `count` places at once, waiting for room.

        Sequences opened together advance together: the engine computes for them only when each of them that is still open
        has asked for something. The composition of every batch then follows from the content alone, so that a run over a file
        gives the same numbers each time. A server opens them one by one and gives up that promise for latency.
        """
        ...

    async def preload(self, ids: Ids[int]) -> None:
        """Keep a text that many prompts start with computed, if the engine can; a hint, never needed for correctness."""
        ...

    def describe(self) -> dict[str, str | int | float]:
        """What makes this engine's numbers what they are (weights digest, dtype, …); part of the judge's id."""
        ...

    async def aclose(self) -> None: ...
