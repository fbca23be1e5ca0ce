"""What is written of a ranking, and how."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Detail(StrEnum):
    """How much of a judgment is written beside a row."""

    SCORES = "scores"  # probability, verdict, status, rank, judge
    CRITIQUE = "critique"  # and what the judge thought, and why it stopped
    FULL = "full"  # and searches with their passages, tokens, all there is


class Pairing(StrEnum):
    """Which samples of a question become a preference pair."""

    BEST_WORST = "best-worst"
    ALL = "all"


class OutputOptions(BaseModel):
    """What is written, and how. Changing it never asks for new judgments."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    detail: Detail = Detail.SCORES
    into: Annotated[str, Field(description="Column that the judgment is written to.")] = "medverify"
    group: Annotated[str | None, Field(description="Column that tells questions apart.")] = None
    id: Annotated[str | None, Field(description="Column that names a row in a pair.")] = None
    keep_best: int | None = None
    min_p: float | None = None
    pairs: Pairing | None = None
    min_margin: float = 0.0
