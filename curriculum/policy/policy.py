"""The weights that are trained: whole or as an adapter, what they say of written tokens, and the files they are kept in."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from configs.adapter import Adapter
from configs.precision import native_bfloat16
from curriculum.objective import sampled_logprobs
from curriculum.policy.rows import ATTENTION, Row
from curriculum.settings import Lora, PolicySettings
from verifier.engines.adapters import merge_adapter, with_adapter
from verifier.engines.model_loading import pick_device
from verifier.engines.sampling import nucleus

_UNCOMPUTED = ("final_logit_softcapping", "attn_logit_softcapping")
_ALL = "all-linear"


class PolicyError(ValueError):
    """The model cannot be trained as asked, or its files cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a policy says of the P tokens of a row that were written by one."""

    logprobs_P: Tensor  # float32, with gradient where there is one
    entropy: float  # nats, summed over the tokens; of the full distribution at the temperature


class Policy:
    """A causal language model with gradients. Weights are float32; arithmetic is bfloat16 where the hardware has it."""

    def __init__(self, folder: Path, settings: PolicySettings, seed: int = 0, adapter: Adapter | None = None) -> None:
        """Load a model folder and, if an adapter is to be trained, put one around it that does nothing yet, or go on with one.

        Args:
            folder: safetensors, tokenizer, config.
            seed: of a new adapter's first weights.
            adapter: to begin with: it is trained further or, where the whole weights are trained, added to them.

        Raises:
            PolicyError: the model's attention or head is of a kind that is not computed here, the adapter fits no layer, or the
                one to begin with is of another kind than the one to be trained.
            EngineError: the adapter to begin with cannot be read, or was made for another model.
            ModuleNotFoundError: an adapter is asked for and peft is not installed; it comes with the extra `train`.
        """
        from transformers import AutoModelForCausalLM

        self.folder = folder
        self.settings = settings
        self.device = pick_device(settings.device)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=ATTENTION)
        _refuse_uncomputed(model.config, folder)
        if settings.recompute:
            # Renamed on the way through the releases that we support.
            getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
        self._base = model
        self.model: Any = _adapted(model, settings.lora, seed, adapter)
        self.model.to(self.device).train()

    @property
    def trained(self) -> list[nn.Parameter]:
        """What the optimiser changes."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def score(self, row: Row, temperature: float = 1.0, top_p: float = 1.0) -> Scored:
        """Log-probabilities of what was written in a row, drawn as the sampler drew it.

        Args:
            row: on this policy's device.
            temperature: above 0.
            top_p: below 1, the distribution is cut to the policy's own nucleus (`objective.sampled_logprobs`).
        """
        with self._arithmetic():
            # The head is the largest matrix of a small model: it is multiplied only where something was written.
            logits_1PV = self.model(
                input_ids=row.ids_1T, position_ids=row.positions_1T, use_cache=False, logits_to_keep=row.sources_P, row=row
            ).logits  # fmt: skip
        logits_1PV = logits_1PV.float() / temperature
        with torch.no_grad():
            logs_1PV = torch.log_softmax(logits_1PV, -1)
            entropy = -float((logs_1PV.exp() * logs_1PV).sum())
            kept_1PV = nucleus(logs_1PV.exp(), top_p) if top_p < 1 else None
            del logs_1PV
        return Scored(sampled_logprobs(logits_1PV, row.targets_P[None], kept_1PV)[0], entropy)

    @torch.no_grad()
    def weights(self) -> dict[str, Tensor]:
        """The whole weights as an engine takes them: by the names of the model's own `state_dict`, adapter included.

        What an adapter does not touch shares memory with the policy.
        """
        if not self.settings.lora.rank:
            return dict(self.model.state_dict())
        from peft.tuners.lora import LoraLayer

        weights = {
            name.replace(".base_layer.", "."): weight
            for name, weight in self._base.state_dict().items()
            if ".lora_" not in name
        }
        for name, layer in self._base.named_modules():
            if isinstance(layer, LoraLayer):
                weights[f"{name}.weight"] = layer.get_base_layer().weight + layer.get_delta_weight("default")
        return weights

    def save(self, folder: Path) -> None:
        """Write what a judge can be started with: an adapter as peft does, or the whole model with its tokenizer."""
        self.model.save_pretrained(folder)
        if not self.settings.lora.rank:
            for file in self.folder.iterdir():
                if file.suffix in (".json", ".jinja", ".txt", ".model") and not (folder / file.name).exists():
                    shutil.copy(file, folder)

    def state(self) -> dict[str, Tensor]:
        """The trained weights, in full precision, by the names of this policy's parameters."""
        return {
            name: parameter.detach().cpu()
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from the trained weights of a checkpoint.

        Raises:
            PolicyError: they are another policy's.
        """
        own = {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        if own.keys() != state.keys() or any(own[name].shape != weight.shape for name, weight in state.items()):
            raise PolicyError("the checkpoint holds other weights than this policy trains: its settings were others")
        with torch.no_grad():
            for name, weight in state.items():
                own[name].copy_(weight)

    @contextmanager
    def holding(self, state: Mapping[str, Tensor]) -> Iterator[None]:
        """Inside, the trained weights are those of `state`; afterwards they are again what they were."""
        own = {name: weight.clone() for name, weight in self.state().items()}
        self.load_state(state)
        try:
            yield
        finally:
            self.load_state(own)

    @contextmanager
    def _arithmetic(self) -> Iterator[None]:
        wanted = self.settings.precision
        low = wanted == "bfloat16" or (wanted == "auto" and native_bfloat16(self.device.type))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=low):
            yield


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write tensors by name."""
    save_file({name: weight.contiguous() for name, weight in weights.items()}, path)


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read what `save_weights` wrote."""
    return load_file(path)


def _refuse_uncomputed(config: Any, folder: Path) -> None:
    if found := [name for name in _UNCOMPUTED if getattr(config, name, None)]:
        raise PolicyError(f"{folder}: {found[0]} is not computed by the trainer")
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        raise PolicyError(f"{folder}: the trainer computes full attention only; use the verl recipe for this model")


def _adapted(model: nn.Module, lora: Lora, seed: int, start: Adapter | None) -> nn.Module:
    if start is not None:
        return _begun_with(model, lora, start)
    if not lora.rank:
        return model
    from peft import LoraConfig, get_peft_model

    targets = lora.targets if lora.targets == _ALL else [target.strip() for target in lora.targets.split(",")]
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, bias="none", task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            adapted: nn.Module = get_peft_model(model, config)
            return adapted
        except ValueError as error:
            raise PolicyError(f"policy.lora.targets = {lora.targets!r} fits no layer of the model: {error}") from error


def _begun_with(model: nn.Module, lora: Lora, start: Adapter) -> nn.Module:
    if not lora.rank:
        return merge_adapter(model, start.folder).requires_grad_(True)
    begun: Any = with_adapter(model, start.folder, trainable=True)
    found = begun.peft_config["default"]
    if (found.r, found.lora_alpha) != (lora.rank, lora.alpha):
        raise PolicyError(
            f"the adapter {start.folder} has rank {found.r} and alpha {found.lora_alpha}: train it with "
            f"policy.lora.rank={found.r} and policy.lora.alpha={found.lora_alpha}"
        )
    return begun  # type: ignore[no-any-return]
