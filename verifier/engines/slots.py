"""Key-value memory for many sequences, and the attention that reads it.

Each sequence owns one slot. One forward pass takes a flat list of new tokens, some sequences giving one (decoding), some many
(prefill): the linear layers see them as a single row, so their cost is that of the tokens there are, without padding. Only
attention knows which token belongs to which slot. It is registered with transformers under `ATTENTION`, and therefore works
with every architecture that takes its attention from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig

from verifier.engines.base import EngineError

ATTENTION = "medverify_slots"


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens of one sequence in a forward pass."""

    slot: int
    start: int  # tokens that the slot holds already
    count: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """Keys and values of a text that many sequences start with, per layer [Hkv, n, D]."""

    ids: list[int]
    keys: list[Tensor]
    values: list[Tensor]


class StepPlan:
    """Where the tokens of one forward pass go. Decoding spans come first, ordered by slot."""

    def __init__(self, decoding: Sequence[Span], prefilling: Sequence[Span], device: torch.device) -> None:
        self.prefilling = prefilling
        self.spans = [*decoding, *prefilling]
        positions = [position for span in self.spans for position in range(span.start, span.start + span.count)]
        self.positions_1T = torch.tensor([positions], device=device)
        ends = torch.tensor([span.count for span in self.spans]).cumsum(0) - 1
        self.last_N = ends.to(device)  # flat index of each span's last token
        self.prefill_masks = [_causal_mask(span, device) for span in prefilling]
        self.decoding = len(decoding)
        if decoding:
            # What torch's attention reads: a view of neighbouring slots; idle slots in between cost a little attention and
            # nothing else, whereas gathering rows would copy the whole memory at every step.
            self.low, self.high = decoding[0].slot, decoding[-1].slot + 1
            self.longest = max(span.start for span in decoding) + 1
            self.slots_B = torch.tensor([span.slot for span in decoding], device=device)
            self.starts_B = torch.tensor([span.start for span in decoding], device=device)
            # What the kernel for single tokens reads.
            self.places_B = np.array([span.slot for span in decoding])
            self.lengths_B = np.array([span.start + 1 for span in decoding])

    @cached_property
    def mask_R11L(self) -> Tensor:  # noqa: N802 - axes
        """bool: what each of the neighbouring slots holds; the kernel has no need of it."""
        device = self.slots_B.device
        lengths_R = torch.ones(self.high - self.low, dtype=torch.long, device=device)
        lengths_R[self.slots_B - self.low] = self.starts_B + 1
        return (torch.arange(self.longest, device=device) < lengths_R[:, None])[:, None, None]


class Slots:
    """Keys and values of all layers, [slots, Hkv, capacity, D] each. Memory is touched, and so taken, only as it fills."""

    def __init__(
        self, config: PreTrainedConfig, count: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (count, heads, capacity, head_size)
        layers = range(config.num_hidden_layers)
        self.keys = [_zeros(shape, dtype, device) for _ in layers]
        self.values = [_zeros(shape, dtype, device) for _ in layers]
        self.capacity = capacity

    def clear(self, slot: int, count: int) -> None:
        """Forget the first `count` tokens of a slot."""
        for layer in self.keys + self.values:
            layer[slot, :, :count] = 0

    def save_prefix(self, slot: int, ids: Sequence[int]) -> Prefix:
        """Copy the first `len(ids)` tokens out of a slot."""
        count = len(ids)
        return Prefix(
            list(ids),
            [layer[slot, :, :count].clone() for layer in self.keys],
            [layer[slot, :, :count].clone() for layer in self.values],
        )

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy the first `count` tokens of one slot into another."""
        for layer in self.keys + self.values:
            layer[target, :, :count] = layer[source, :, :count]

    def load_prefix(self, slot: int, prefix: Prefix, count: int) -> None:
        """Copy the first `count` tokens of a prefix into a slot."""
        for layer, saved in zip(self.keys + self.values, prefix.keys + prefix.values, strict=True):
            layer[slot, :, :count] = saved[:, :count]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros: what attention masks out must still be a number, for zero times NaN is NaN."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # Memory that the system hands out zeroed costs nothing until it is written to; torch would write to all of it.
    width = {2: np.int16, 4: np.int32}[dtype.itemsize]
    return torch.from_numpy(np.zeros(shape, width)).view(dtype)


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    scaling: float | None = None, slots: Slots, plan: StepPlan, **extra: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attention of the flat tokens of one step over their own slots.

    Args:
        query: [1, H, T, D]; key, value: [1, Hkv, T, D]; the new tokens in the plan's order.

    Returns:
        [1, T, H, D], as transformers expects it.
    """
    if any(extra.get(feature) is not None for feature in ("softcap", "s_aux")):
        raise EngineError(
            "this model caps or biases its attention, which the embedded engine does not compute; use vLLM"
        )
    keys, values = slots.keys[module.layer_idx], slots.values[module.layer_idx]
    heads, tokens, size = query.shape[1:]
    out_THD = query.new_empty(tokens, heads, size)
    count = plan.decoding
    if count:
        keys[plan.slots_B, :, plan.starts_B] = key[0, :, :count].transpose(0, 1)
        values[plan.slots_B, :, plan.starts_B] = value[0, :, :count].transpose(0, 1)
        out_THD[:count] = _decode(query[0, :, :count], keys, values, plan, scaling)
    offset = count
    for span, mask in zip(plan.prefilling, plan.prefill_masks, strict=True):
        new, end = slice(offset, offset + span.count), span.start + span.count
        keys[span.slot, :, span.start : end] = key[0, :, new]
        values[span.slot, :, span.start : end] = value[0, :, new]
        seen_keys, seen_values = keys[span.slot : span.slot + 1, :, :end], values[span.slot : span.slot + 1, :, :end]
        out_THD[new] = _prefill(query[:, :, new], seen_keys, seen_values, mask, scaling)[0].transpose(0, 1)
        offset += span.count
    return out_THD[None], None


def _decode(query_HBD: Tensor, keys: Tensor, values: Tensor, plan: StepPlan, scaling: float | None) -> Tensor:
    heads, count, size = query_HBD.shape
    key_heads, rows = keys.shape[1], plan.high - plan.low
    query_BHD = query_HBD.transpose(0, 1)
    if keys.device.type == "cpu" and keys.dtype == torch.float32:
        from verifier.engines.decode_attention import attend_single_tokens  # numba, which a GPU has no need of

        query_BHGD = query_BHD.reshape(count, key_heads, heads // key_heads, size).contiguous()
        scale = size**-0.5 if scaling is None else scaling
        out_BHGD = attend_single_tokens(query_BHGD, keys, values, plan.places_B, plan.lengths_B, scale)
        return out_BHGD.reshape(count, heads, size)
    if rows == count:
        query_RHD = query_BHD
    else:
        query_RHD = query_HBD.new_zeros(rows, heads, size)
        query_RHD[plan.slots_B - plan.low] = query_BHD
    # The query heads that share a key head become its query positions: no copy of keys and values per query head.
    out = scaled_dot_product_attention(
        query_RHD.reshape(rows, key_heads, heads // key_heads, size),
        keys[plan.low : plan.high, :, : plan.longest],
        values[plan.low : plan.high, :, : plan.longest],
        attn_mask=plan.mask_R11L,
        scale=scaling,
    ).reshape(rows, heads, size)
    return out if rows == count else out[plan.slots_B - plan.low]


def _prefill(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    return scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=True
    )


def _causal_mask(span: Span, device: torch.device) -> Tensor | None:
    """bool [1, 1, count, start + count]: each new token sees all before it and itself; None if nothing came before."""
    if span.start == 0:
        return None
    end = span.start + span.count
    return (torch.arange(end, device=device) <= torch.arange(span.start, end, device=device)[:, None])[None, None]


AttentionInterface.register(ATTENTION, attend)
