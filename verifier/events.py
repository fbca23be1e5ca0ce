"""What happens in an episode, as it happens: for those who watch one, and for those who measure them.

An event never changes a judgment. It is told on the event loop, between two steps of the episode: what a watcher does must be
short and must not raise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from verifier.types import Search


@dataclass(frozen=True, slots=True)
class Opened:
    """The episode has its place in the engine."""

    waited_s: float


@dataclass(frozen=True, slots=True)
class Thought:
    """The policy wrote a thought."""

    text: str
    seconds: float  # of the turn that it was written in


@dataclass(frozen=True, slots=True)
class Searched:
    """A search was answered and shown to the policy."""

    search: Search
    seconds: float


@dataclass(frozen=True, slots=True)
class Decided:
    """There is a verdict."""

    label: Literal[0, 1]
    p_correct: float
    forced: bool
    seconds: float  # since the last event


Event = Opened | Thought | Searched | Decided
Watch = Callable[[Event], None]


def unwatched(_: object) -> None:
    """Nobody looks."""
