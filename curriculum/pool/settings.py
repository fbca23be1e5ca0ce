"""Settings of the pool: the section `pool` of a training config."""

from typing import Annotated

from pydantic import Field, model_validator

from configs.settings import Place, Section
from curriculum.pool.sources.jsonl import JsonlSource
from curriculum.pool.sources.medprm import MedPrmSource
from curriculum.pool.sources.pack import PackSource

Source = Annotated[PackSource | JsonlSource | MedPrmSource, Field(discriminator="kind")]
SourceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class OverlapSettings(Section):
    """What must not be trained on."""

    packs: Annotated[
        tuple[Place, ...], Field(description="PREFIX of each evaluation pack; of one without traces, its questions.")
    ] = ()
    threshold: Annotated[
        float, Field(ge=0.5, le=1, description="Similarity from which on two questions are near each other.")
    ] = 0.8


class PoolSettings(Section):
    """Which labelled traces a judge is trained on, and in which order."""

    sources: Annotated[dict[SourceName, Source], Field(min_length=1, description="By a name of your choice.")]
    weights: Annotated[
        dict[SourceName, Annotated[float, Field(gt=0, allow_inf_nan=False)]] | None,
        Field(description="Share of each source in what is drawn; null: as much as each has, so that all last."),
    ] = None
    seed: Annotated[int, Field(ge=0, description="Of the order in which traces are drawn.")] = 0
    per_question: Annotated[
        int | None, Field(ge=1, description="Most traces of one question, half of each label; null: all.")
    ] = None
    overlap: OverlapSettings = OverlapSettings()

    @model_validator(mode="after")
    def _weights_fit_sources(self) -> "PoolSettings":
        if self.weights is not None and self.weights.keys() != self.sources.keys():
            odd = sorted(self.weights.keys() ^ self.sources.keys())
            raise ValueError(f"weights: give one for every source and for nothing else; not so for {', '.join(odd)}")
        return self
