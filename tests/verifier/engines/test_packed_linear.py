"""Packed weights give what plain ones give."""

import pytest
import torch
from torch import nn

from configs.precision import native_bfloat16
from verifier.engines.packed_linear import PackedLinear, pack_linears


@pytest.mark.parametrize("rows", [1, 3, 16, 200])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        pytest.param(
            torch.bfloat16,
            marks=pytest.mark.skipif(not native_bfloat16("cpu"), reason="this CPU does not multiply bfloat16"),
        ),
    ],
)
@torch.inference_mode()
def test_the_same_product(rows: int, bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(48, 80, bias=bias, dtype=dtype)
    batch = torch.randn(1, rows, 48, dtype=dtype)
    packed = PackedLinear(linear)
    rounding = 1e-5 if dtype is torch.float32 else 0.02
    assert torch.allclose(packed(batch), linear(batch), atol=rounding)
    other = nn.Linear(48, 80, bias=bias)
    packed.pack(other.weight, other.bias)
    assert packed(batch).dtype is dtype
    assert torch.allclose(packed(batch).float(), other(batch.float()), atol=rounding)


@torch.inference_mode()
def test_all_linear_layers_of_a_model_are_packed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 4)))
    batch = torch.randn(5, 8)
    before = model(batch)
    pack_linears(model)
    assert not [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert torch.allclose(model(batch), before, atol=1e-5)
