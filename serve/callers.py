"""Who asks."""

from dataclasses import dataclass

ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, as far as the service knows."""

    name: str = ANONYMOUS


def caller() -> Caller:
    """The dependency of every route that costs something."""
    return Caller()
