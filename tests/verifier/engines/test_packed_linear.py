"""Packed weights give what plain ones give."""

import pytest
import torch
from torch import nn

from verifier.engines.packed_linear import PackedLinear, pack_linears


@pytest.mark.parametrize("rows", [1, 3, 16, 200])
@pytest.mark.parametrize("bias", [False, True])
@torch.inference_mode()
def test_the_same_product(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(48, 80, bias=bias)
    batch = torch.randn(1, rows, 48)
    assert torch.allclose(PackedLinear(linear)(batch), linear(batch), atol=1e-5)


@torch.inference_mode()
def test_all_linear_layers_of_a_model_are_packed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 4)))
    batch = torch.randn(5, 8)
    before = model(batch)
    pack_linears(model)
    assert not [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert torch.allclose(model(batch), before, atol=1e-5)
