"""What decides which vector a text gets: the recipe, as data, pinned to the weights it is used with.

The recipe goes into the manifest of an index, and the index refuses any other.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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


# What of a model folder decides its vectors, beside the weights.
_RECIPE_FILES = (
    "config.json",
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


def weights_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of the folder's weights, config and tokenizer files.

    Where a folder has both safetensors and `.bin` weights only the former count, because only they are loaded.

    Raises:
        EncoderError: the folder has no weights or no config.
    """
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    if not weights or not (folder / "config.json").is_file():
        raise EncoderError(f"{folder}: not a model folder; expected config.json and *.safetensors or *.bin weights")
    total = hashlib.sha256()
    for path in [*weights, *(folder / name for name in _RECIPE_FILES if (folder / name).is_file())]:
        with path.open("rb") as file:
            total.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


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
