"""A LoRA adapter around a model, to be trained further, or added to its weights, so that it costs nothing while it runs."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from verifier.engines.base import EngineError


def with_adapter(model: torch.nn.Module, folder: Path, *, trainable: bool = False) -> Any:
    """peft's model with the adapter around `model`, which it changes.

    Args:
        trainable: the adapter's weights take gradients; no others do.

    Raises:
        EngineError: the adapter cannot be read, or was made for a model of another shape.
        ModuleNotFoundError: peft is not installed; it comes with the extra `train`.
    """
    from peft import LoraConfig, PeftModel

    try:
        config = LoraConfig.from_pretrained(folder)
        config.inference_mode = not trainable  # as it was saved, it is for inference
        adapted = PeftModel(model, config)
        device = str(next(model.parameters()).device)
        found = adapted.load_adapter(folder, "default", is_trainable=trainable, torch_device=device)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise EngineError(f"cannot add the adapter {folder} to the model: {error}") from error
    # What the adapter does not hold would stay as it was drawn, that is, without effect: half an adapter judges all the same.
    strangers = sorted([*found.unexpected_keys, *(key for key in found.missing_keys if ".lora_" in key)])
    if strangers:
        raise EngineError(
            f"the adapter {folder} does not fit the model: {len(strangers)} of its matrices, first {strangers[0]}"
        )
    return adapted


def merge_adapter(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """The model with the adapter in its weights, in their own precision. Changes `model`.

    Raises:
        EngineError: the adapter cannot be read, does not fit, or holds numbers that are none.
        ModuleNotFoundError: as `with_adapter`.
    """
    try:
        merged: torch.nn.Module = with_adapter(model, folder).merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise EngineError(f"cannot add the adapter {folder} to the model: {error}") from error
    return merged
