"""The memory of keys and values, and the attention that reads it, against attention written out."""

from types import SimpleNamespace

import pytest
import torch
from tiny_model import config
from torch import Tensor

from verifier.engines.slots import Slots, Span, StepPlan, attend

CPU = torch.device("cpu")
HEADS, KEY_HEADS, SIZE = 4, 2, 16
LAYER = SimpleNamespace(layer_idx=1)


def new_slots(count: int = 5, capacity: int = 40) -> Slots:
    return Slots(config(), count, capacity, torch.float32, CPU)


def plain_attention(query_THD: Tensor, keys_LHD: Tensor, values_LHD: Tensor, start: int) -> Tensor:
    """One head and one query at a time."""
    out = torch.empty_like(query_THD)
    for token in range(query_THD.shape[0]):
        seen = start + token + 1
        for head in range(HEADS):
            shared = head // (HEADS // KEY_HEADS)
            weights = torch.softmax(keys_LHD[:seen, shared] @ query_THD[token, head] * SIZE**-0.5, 0)
            out[token, head] = weights @ values_LHD[:seen, shared]
    return out


class Sequences:
    """Sequences that grow in their slots, and everything that was ever written to them."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.keys = {slot: torch.empty(0, KEY_HEADS, SIZE) for slot in range(slots.keys[0].shape[0])}
        self.values = dict(self.keys)
        self.random = torch.Generator().manual_seed(0)

    def step(self, decoding: list[int], prefilling: dict[int, int]) -> None:
        """One step; the result must be that of attention written out."""
        spans = [(slot, 1) for slot in decoding] + list(prefilling.items())
        placed = [Span(slot, len(self.keys[slot]), count) for slot, count in spans]
        plan = StepPlan(placed[: len(decoding)], placed[len(decoding) :], CPU)
        total = sum(count for _, count in spans)
        query = torch.randn(1, HEADS, total, SIZE, generator=self.random)
        key, value = (torch.randn(1, KEY_HEADS, total, SIZE, generator=self.random) for _ in range(2))
        out, weights = attend(
            LAYER, query, key, value, None, scaling=SIZE**-0.5, slots=self.slots, plan=plan, dropout=0.0
        )
        assert weights is None
        assert out.shape == (1, total, HEADS, SIZE)
        assert plan.last_N.tolist() == torch.tensor([count for _, count in spans]).cumsum(0).sub(1).tolist()
        at = 0
        for span in placed:
            new = slice(at, at + span.count)
            self.keys[span.slot] = torch.cat([self.keys[span.slot], key[0, :, new].transpose(0, 1)])
            self.values[span.slot] = torch.cat([self.values[span.slot], value[0, :, new].transpose(0, 1)])
            expected = plain_attention(
                query[0, :, new].transpose(0, 1), self.keys[span.slot], self.values[span.slot], span.start
            )
            assert torch.allclose(out[0, new], expected, atol=1e-5)
            assert plan.positions_1T[0, new].tolist() == list(range(span.start, span.start + span.count))
            at += span.count

    def forget(self, slot: int, kept: int = 0) -> None:
        self.keys[slot], self.values[slot] = self.keys[slot][:kept], self.values[slot][:kept]


def test_sequences_of_all_lengths_do_not_see_one_another() -> None:
    sequences = Sequences(new_slots())
    sequences.step([], {0: 7, 3: 1, 4: 12})
    sequences.step([0, 3, 4], {})
    sequences.step([0, 4], {1: 5})  # an idle slot in between
    sequences.step([1], {3: 6, 0: 2})  # the next turns of two
    sequences.step([0, 1, 3, 4], {2: 20})
    sequences.forget(2, kept=4)
    sequences.step([0, 2], {})  # rolled back, next to what is left of its old text
    sequences.forget(0)
    sequences.step([3, 4], {0: 1})
    sequences.step([0, 1, 2, 3, 4], {})


def test_a_slot_can_be_filled_to_the_brim() -> None:
    sequences = Sequences(new_slots(capacity=6))
    sequences.step([], {0: 5, 1: 6})
    sequences.step([0], {})


def test_a_prefix_is_copied_and_the_copy_kept() -> None:
    slots = new_slots()
    sequences = Sequences(slots)
    for layer in (0, 1):
        LAYER.layer_idx = layer
        sequences.forget(0)
        sequences.step([], {0: 8})
    LAYER.layer_idx = 1
    kept = [layer[0, :, :5].clone() for layer in slots.keys + slots.values]
    prefix = slots.save_prefix(0, [9, 8, 7, 6, 5])
    slots.clear(0, 8)
    assert all(not layer[0].any() for layer in slots.keys + slots.values)
    slots.load_prefix(3, prefix, 5)
    assert prefix.ids == [9, 8, 7, 6, 5]
    assert all(
        torch.equal(layer[3, :, :5], saved) for layer, saved in zip(slots.keys + slots.values, kept, strict=True)
    )


def test_the_beginning_of_a_slot_is_copied() -> None:
    slots = new_slots()
    for layer in slots.keys + slots.values:
        layer[1] = torch.randn_like(layer[1])
    slots.copy(1, 3, 5)
    for layer in slots.keys + slots.values:
        assert torch.equal(layer[3, :, :5], layer[1, :, :5])
        assert not layer[3, :, 5:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_new_memory_holds_numbers(dtype: torch.dtype) -> None:
    """Attention multiplies what it masks out by zero: that helps against numbers only."""
    for _ in range(20):
        dirt = [torch.full((5, KEY_HEADS, 40, SIZE), torch.nan, dtype=dtype) for _ in range(6)]
        del dirt
        slots = Slots(config(), 5, 40, dtype, CPU)
        assert all(layer.dtype is dtype and not layer.any() for layer in slots.keys + slots.values)
