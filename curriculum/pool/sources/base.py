"""What all sources have in common: where they are from, and what reading one gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from configs.settings import Section
from curriculum.pool.example import Example

Told = Annotated[str, Field(min_length=1)]


class SourceSettings(Section):
    """Whose the traces are. A pool is not made of material that nobody vouches for."""

    licence: Annotated[Told, Field(description="Terms under which the traces may be trained on.")]
    provenance: Annotated[Told, Field(description="Who published them where, and what made them.")]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The examples of one source."""

    examples: Sequence[Example]
    unlabelled: int  # traces left out because they have no label, or no text
