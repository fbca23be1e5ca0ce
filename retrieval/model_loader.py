"""Load a transformers model with its tokenizer, whole: no weight may be made up."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

from retrieval.passage import EncoderError


class Loaded(NamedTuple):
    """A model in evaluation mode on its device, and its tokenizer."""

    tokenizer: Any
    model: Any


def pick_device(name: str) -> str:
    """The device that a setting names; auto is the GPU where there is one."""
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def load_model(
    folder: Path, head: Literal["none", "classification"], device: str, precision: str = "float32"
) -> Loaded:
    """Load from local files only.

    Args:
        head: what is on top of the model; with none, a missing pooler is no fault, for nothing reads it.
        device: cpu, cuda or cuda:N.
        precision: a floating type of torch.

    Raises:
        EncoderError: cannot be loaded, or weights are missing.
    """
    import torch
    from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

    kind: Any = AutoModel if head == "none" else AutoModelForSequenceClassification
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, report = kind.from_pretrained(
            folder, local_files_only=True, dtype=getattr(torch, precision), output_loading_info=True
        )
        model = model.eval().to(device)
    except (OSError, ValueError, RuntimeError) as error:
        raise EncoderError(f"{folder}: cannot be loaded on {device}: {error}") from error
    # transformers fills what is missing with random numbers: an encoder without a head would rank at random.
    missing = sorted(key for key in report["missing_keys"] if not (head == "none" and key.startswith("pooler.")))
    if missing:
        raise EncoderError(f"{folder}: the weights lack {len(missing)} tensors of the model, such as {missing[0]}")
    return Loaded(tokenizer, model)
