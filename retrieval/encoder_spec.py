"""What decides which vector a text gets: the recipe, as data, pinned to the weights it is used with.

The recipe goes into the manifest of an index, and the index refuses any other.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from configs.digest import digest_of, incomplete, model_files, sha256_file
from retrieval.passage import EncoderError, IndexMismatchError


class ModelIdentity(BaseModel):
    """Which model: where it was published, and a digest of the files that are in use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1, description="Public name of the model.")]
    revision: Annotated[str, Field(description="Published revision; empty: not known.")] = ""
    digest: Annotated[
        str, Field(pattern=r"^([0-9a-f]{64})?$", description="`weights_digest` of its folder; empty: not pinned yet.")
    ] = ""


class EncoderSpec(BaseModel):
    """Everything that decides which vector a text gets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1, description="Name of the recipe.")]
    query_model: ModelIdentity
    passage_model: ModelIdentity
    pooling: Annotated[Literal["cls", "mean"], Field(description="First token, or mean over the text's tokens.")]
    normalize: Annotated[bool, Field(description="Scale vectors to length 1.")]
    query_max_tokens: Annotated[int, Field(ge=3, description="Queries are cut here, special tokens included.")]
    passage_max_tokens: Annotated[int, Field(ge=4, description="Passages are cut here, special tokens included.")]
    passage_format: Annotated[
        Literal["pair", "joined"],
        Field(description="pair: (title, text) as the tokenizer's two segments; joined: `title. text` as one."),
    ]
    metric: Annotated[Literal["ip"], Field(description="Inner product.")] = "ip"
    dim: Annotated[int, Field(ge=1, description="Length of a vector.")]

    def recipe(self) -> dict[str, Any]:
        """What decides the vectors, flat: every field but the labels, and each model's digest for the model."""
        fields = self.model_dump(exclude={"name", "query_model", "passage_model"})
        digests = {"query_model.digest": self.query_model.digest, "passage_model.digest": self.passage_model.digest}
        return fields | digests


class Arithmetic(BaseModel):
    """What decides the last bits of a passage's vector, beside the recipe.

    It is recorded, and a build that was interrupted goes on only with the same. It is no part of the recipe: queries are
    always encoded in float32, so that an index which a GPU built in bfloat16 can be searched on a laptop.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: Literal["float32", "bfloat16"]
    batch_size: Annotated[int, Field(ge=1, description="Passages computed together, at most.")]
    device: Annotated[str, Field(description="Kind of device: cpu or cuda.")]


# MedCPT as its authors use it: CLS, inner product, never normalised, short queries, articles as (title, abstract) pairs.
MEDCPT = EncoderSpec(
    name="medcpt",
    query_model=ModelIdentity(name="ncbi/MedCPT-Query-Encoder"),
    passage_model=ModelIdentity(name="ncbi/MedCPT-Article-Encoder"),
    pooling="cls",
    normalize=False,
    query_max_tokens=64,
    passage_max_tokens=512,
    passage_format="pair",
    dim=768,
)
MINILM_L6 = EncoderSpec(
    name="minilm-l6",
    query_model=ModelIdentity(name="sentence-transformers/all-MiniLM-L6-v2"),
    passage_model=ModelIdentity(name="sentence-transformers/all-MiniLM-L6-v2"),
    pooling="mean",
    normalize=True,
    query_max_tokens=256,
    passage_max_tokens=256,
    passage_format="joined",
    dim=384,
)
PRESETS: Mapping[str, EncoderSpec] = MappingProxyType({spec.name: spec for spec in (MEDCPT, MINILM_L6)})


def weights_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of the folder's weights, config and tokenizer files.

    Raises:
        EncoderError: the folder is not a whole model.
    """
    if lack := incomplete(folder):
        raise EncoderError(f"{folder}: not a model folder: {lack}")
    return digest_of({file.name: sha256_file(file) for file in model_files(folder)})


def pinned(model: ModelIdentity, folder: Path, field: str) -> ModelIdentity:
    """Return the identity with the folder's digest filled in.

    Raises:
        EncoderError: not a model folder.
        IndexMismatchError: the identity is already pinned to another digest; `field` names it in the message.
    """
    digest = weights_digest(folder)
    if model.digest and model.digest != digest:
        raise IndexMismatchError(
            f"{field}.digest: the recipe is pinned to {model.digest} ({model.name}), the files in {folder} have {digest}"
        )
    return model.model_copy(update={"digest": digest})
