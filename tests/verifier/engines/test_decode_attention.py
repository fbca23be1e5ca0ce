import os
import subprocess
import sys
from pathlib import Path

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


def test_weights_are_those_of_exp_over_the_whole_range() -> None:
    scores = torch.linspace(0, -86, 4001)
    keys = scores.reshape(1, 1, -1, 1)
    values = torch.eye(1)[None, None].expand(1, 1, len(scores), 1).contiguous()
    values[0, 0, 1:] = 0  # the weight of the first is 1 / the sum
    out = attend_single_tokens(torch.ones(1, 1, 1, 1), keys.contiguous(), values, np.array([0]), np.array([4001]), 1.0)
    assert out.item() == pytest.approx(1 / scores.double().exp().sum().item(), rel=1e-6)


_DIGEST = """
import hashlib, numpy, torch
from verifier.engines.decode_attention import attend_single_tokens
query, keys, values = (torch.randn(2, 3, n, 64, generator=torch.Generator().manual_seed(n)) for n in (3, 400, 401))
out = attend_single_tokens(query, keys, values, numpy.arange(2), numpy.array([400, 123]), 0.125)
print(hashlib.sha256(out.numpy().tobytes()).hexdigest())
"""


def test_what_is_read_from_disk_computes_as_what_was_just_compiled(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run([sys.executable, "-c", _DIGEST], env=environment, check=True, capture_output=True).stdout
        for _ in range(2)
    )
    assert list(tmp_path.rglob("*.nbc"))
    assert first == second
