"""Loading a language model for the embedded engine: where it runs, in which precision, and whether its attention fits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from configs.precision import native_bfloat16
from verifier.engines.adapters import merge_adapter
from verifier.engines.base import EngineError
from verifier.engines.packed_linear import PackedLinear, pack_linears
from verifier.engines.slots import ATTENTION
from verifier.engines.tokenizer import HFTokenizer


def load_model(
    path: Path, dtype: torch.dtype, device: torch.device, max_context: int, adapter: Path | None = None
) -> tuple[torch.nn.Module, HFTokenizer]:
    """A model folder as a model ready for inference with our attention, and its tokenizer.

    Args:
        adapter: folder of a LoRA adapter to add to the weights; needs peft.

    Raises:
        EngineError: the folder cannot be loaded, its attention is of a kind that slots cannot hold, or the adapter does not
            fit it.
    """
    from transformers import AutoModelForCausalLM

    try:
        tokenizer = HFTokenizer(path)
        model, found = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, attn_implementation=ATTENTION, output_loading_info=True
        )
        model = model.to(device).eval()
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise EngineError(f"cannot load a language model from {path} on {device}: {error}") from error
    if missing := sorted(found["missing_keys"]) + sorted(map(str, found["mismatched_keys"])):
        # transformers fills them with random numbers, which would judge all the same
        raise EngineError(
            f"{path} is not a whole language model: {len(missing)} tensors are missing, first {missing[0]}"
        )
    kinds = set(_layer_types(model.config, max_context))
    if kinds != {"full_attention"}:
        raise EngineError(f"{path} has layers of kind {sorted(kinds)}; the embedded engine holds full attention only: "
                          "use the engine vllm, or a server and the engine openai")  # fmt: skip
    if adapter is not None:
        model = merge_adapter(model, adapter)
    if device.type == "cpu" and (dtype is torch.float32 or (dtype is torch.bfloat16 and native_bfloat16("cpu"))):
        pack_linears(model)
    return model, tokenizer


@torch.no_grad()
def replace_weights(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give a loaded model other weights, in its own precision; packed layers are packed again.

    Args:
        weights: by the names of the unpacked model's `state_dict`.

    Raises:
        EngineError: a weight of the model is missing or has another shape; nothing was replaced.
    """
    plain = dict(model.named_parameters())
    packed = {name: layer for name, layer in model.named_modules() if isinstance(layer, PackedLinear)}
    matrices = {f"{name}.weight" for name in packed}
    biases = {f"{name}.bias" for name, layer in packed.items() if layer.bias is not None}
    if missing := sorted((plain.keys() | matrices | biases) - weights.keys()):
        raise EngineError(f"{len(missing)} weights are missing, first {missing[0]}")
    if others := [name for name, weight in plain.items() if weight.shape != weights[name].shape]:
        raise EngineError(f"{others[0]} has another shape: these are another model's weights")
    for name, weight in plain.items():
        weight.copy_(weights[name])
    for name, layer in packed.items():
        layer.pack(weights[f"{name}.weight"], weights[f"{name}.bias"] if layer.bias is not None else None)


def _layer_types(config: Any, max_context: int) -> list[str]:
    """Kinds of attention in a model. Older configs name no kinds, only a window, which is none if all of the context fits in."""
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    plain = "sliding_attention" if window and window < max_context else "full_attention"
    return getattr(config, "layer_types", None) or [plain]


def pick_device(setting: str) -> torch.device:
    """The device of a setting; `auto` takes a GPU if torch sees one."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if setting == "auto" else setting)
    except RuntimeError as error:
        raise EngineError(f"{setting!r} is not a device; expected auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineError(f"there is no device {setting}: torch sees {torch.cuda.device_count()} GPU(s)")
    return device


def pick_dtype(setting: str, device: torch.device) -> torch.dtype:
    """The precision of a setting; `auto` is bfloat16 where the hardware multiplies it natively, else float32."""
    if setting != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[setting]
    return torch.bfloat16 if native_bfloat16(device.type) else torch.float32
