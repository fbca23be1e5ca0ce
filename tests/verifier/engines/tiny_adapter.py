"""A LoRA adapter with random matrices, in the files that peft writes, and the model that it should amount to."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

RANK, ALPHA = 4, 8
TARGETS = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")


def save_adapter(model_folder: Path, folder: Path, size: float = 0.3, **config: Any) -> Path:
    """An adapter to the model in `model_folder`; `size` is the spread of what it adds, in spreads of the weights."""
    folder.mkdir(parents=True)
    tensors = {}
    for name, (down, up) in _matrices(model_folder, size).items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = down
        tensors[f"base_model.model.{name}.lora_B.weight"] = up
    save_file(tensors, folder / "adapter_model.safetensors")
    whole = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "bias": "none",
        "target_modules": [target.rpartition(".")[2] for target in TARGETS], "base_model_name_or_path": "elsewhere",
        "inference_mode": True, **config,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(whole))
    return folder


def save_merged(model_folder: Path, folder: Path, size: float = 0.3) -> Path:
    """The model with that adapter in its weights, computed by the definition: W + alpha / r * B A."""
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    with torch.no_grad():
        for name, (down, up) in _matrices(model_folder, size).items():
            model.get_parameter(f"{name}.weight").add_(ALPHA / RANK * up @ down)
    shutil.copytree(model_folder, folder)
    model.save_pretrained(folder)
    return folder


def _matrices(model_folder: Path, size: float) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """For each adapted layer [RANK, in] and [out, RANK], the same for the same model."""
    weights = AutoModelForCausalLM.from_pretrained(model_folder).state_dict()
    random = torch.Generator().manual_seed(7)
    matrices = {}
    for name, weight in weights.items():
        layer = name.removesuffix(".weight")
        if layer.endswith(TARGETS):
            rows, columns = weight.shape
            down = torch.randn(RANK, columns, generator=random)
            up = torch.randn(rows, RANK, generator=random)
            spread = size * float(weight.std()) / (ALPHA / RANK * RANK**0.5)
            matrices[layer] = (down, up * spread)
    return matrices
