import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from verifier.engines.decode_attention import attend_single_tokens


def slots(count: int, heads: int, capacity: int, size: int) -> torch.Tensor:
    return torch.randn(count, heads, capacity, size, generator=torch.Generator().manual_seed(count + size))


@pytest.mark.parametrize(("key_heads", "group", "size"), [(3, 3, 64), (1, 1, 8), (2, 4, 80), (4, 1, 7)])
def test_it_is_torchs_attention_over_each_slot(key_heads: int, group: int, size: int) -> None:
    keys, values = slots(6, key_heads, 50, size), slots(7, key_heads, 50, size)[:6]
    places, lengths = [4, 0, 5], [1, 50, 17]
    query = slots(3, key_heads, group, size)
    out = attend_single_tokens(query, keys, values, np.array(places), np.array(lengths), 0.3)
    for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
        expected = scaled_dot_product_attention(
            query[row], keys[place, :, :length], values[place, :, :length], scale=0.3
        )
        torch.testing.assert_close(out[row], expected)


def test_a_row_does_not_depend_on_the_others() -> None:
    keys, values, query = slots(4, 3, 40, 16), slots(4, 3, 40, 16), slots(4, 3, 3, 16)
    together = attend_single_tokens(query, keys, values, np.arange(4), np.array([9, 40, 3, 21]), 0.25)
    alone = attend_single_tokens(query[3:].contiguous(), keys, values, np.array([3]), np.array([21]), 0.25)
    assert torch.equal(together[3:], alone)


def test_what_lies_beyond_the_length_is_not_read() -> None:
    keys, values, query = slots(1, 2, 30, 8), slots(1, 2, 30, 8), slots(1, 2, 3, 8)
    keys[:, :, 10:] = values[:, :, 10:] = float("nan")
    assert attend_single_tokens(query, keys, values, np.array([0]), np.array([10]), 0.3).isfinite().all()


@pytest.mark.parametrize("where", ["query", "keys", "values"])
def test_a_nan_stays_one(where: str) -> None:
    parts = {"query": slots(1, 2, 3, 8), "keys": slots(1, 2, 30, 8), "values": slots(1, 2, 30, 8)}
    parts[where][0, 0, 0] = float("nan")
    out = attend_single_tokens(*parts.values(), np.array([0]), np.array([30]), 0.3)
    assert out[0, 0, 0].isnan().any()
    assert out[0, 1].isfinite().all()
