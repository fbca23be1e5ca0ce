"""Linear layers on a CPU, float32 or natively multiplied bfloat16, with weights in the layout that oneDNN multiplies fastest.

`torch.nn.Linear` hands a plain matrix to the BLAS library, which is slow for the few rows that a decoding step has. With packed
weights a step takes a half to four fifths of the time, in float32 from three sequences on (docs/benchmarks.md). The operators are
those that torch's own compiler emits for a frozen model.
"""

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """Drop-in for the forward pass of a `nn.Linear`; its weights can be replaced, not read or trained."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._dtype = linear.weight.dtype
        self.pack(linear.weight, linear.bias)

    def pack(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take other weights, [out, in] and [out], in any precision; they are kept in that of the first ones."""
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(self._dtype).contiguous(), None)
        self.bias = None if bias is None else bias.detach().to(self._dtype, copy=True)

    def forward(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self.bias, "none", [], "")
        return product


def pack_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` inside `model` by its packed form, in place; does nothing without oneDNN."""
    if not torch._C._has_mkldnn:
        return
    for name, child in list(model.named_children()):
        if type(child) is nn.Linear:
            setattr(model, name, PackedLinear(child))
        else:
            pack_linears(child)
