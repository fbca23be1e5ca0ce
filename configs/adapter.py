"""A LoRA adapter's folder, as peft writes it: is it whole, what is in it, and how large is it?"""

from dataclasses import dataclass
from pathlib import Path

from configs import strict_json
from configs.digest import digest_of, sha256_file

_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"


class AdapterError(Exception):
    """The folder is not a LoRA adapter that can be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter on this machine."""

    folder: Path
    digest: str  # SHA-256 over its configuration and weights; part of the judge's id
    rank: int  # the largest of its matrices


def read_adapter(folder: Path) -> Adapter:
    """Look at an adapter without loading it. Hashes its weights, which are small.

    Raises:
        AdapterError: a file is missing, the configuration cannot be read, or the adapter is of another kind than LoRA.
    """
    for name in (_CONFIG, _WEIGHTS):
        if not (folder / name).is_file():
            raise AdapterError(f"{folder} is not an adapter: it has no {name}; save one with peft's save_pretrained")
    try:
        config = strict_json.parse((folder / _CONFIG).read_bytes())
        kind, rank = config["peft_type"], max([config["r"], *(config.get("rank_pattern") or {}).values()])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdapterError(f"{folder / _CONFIG} cannot be read ({type(error).__name__}: {error})") from error
    if kind != "LORA" or not isinstance(rank, int) or rank < 1:
        raise AdapterError(f"{folder} is an adapter of kind {kind!r} and rank {rank!r}; only LoRA is supported")
    return Adapter(folder, digest_of({name: sha256_file(folder / name) for name in (_CONFIG, _WEIGHTS)}), rank)
