"""A LoRA adapter added to a model's own weights, so that it costs nothing while the model runs."""

from pathlib import Path

import torch
from safetensors import SafetensorError

from verifier.engines.base import EngineError


def merge_adapter(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """The model with the adapter in its weights, in their own precision. Changes `model`.

    Raises:
        EngineError: the adapter cannot be read, or was made for a model of another shape.
        ModuleNotFoundError: peft is not installed; it comes with the extra `train`.
    """
    from peft import LoraConfig, PeftModel

    try:
        adapted = PeftModel(model, LoraConfig.from_pretrained(folder))
        found = adapted.load_adapter(folder, "default", torch_device=str(next(model.parameters()).device))
        # What the adapter does not hold would stay as it was drawn, that is, without effect: half an adapter judges all the same.
        strangers = sorted([*found.unexpected_keys, *(key for key in found.missing_keys if ".lora_" in key)])
        if strangers:
            raise EngineError(
                f"the adapter {folder} does not fit the model: {len(strangers)} of its matrices, first {strangers[0]}"
            )
        merged: torch.nn.Module = adapted.merge_and_unload(safe_merge=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise EngineError(f"cannot add the adapter {folder} to the model: {error}") from error
    return merged
