"""BERT over texts of different lengths without padding.

The tokens of all texts lie in one row, so that the linear layers, which are nearly all of the work, compute those that there are
and no others. Only attention knows where a text ends: texts of one length are neighbours, and are attended to together. For
short texts on a CPU this takes three quarters of the time of padded batches (docs/benchmarks.md).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ATTENTION = "medverify_unpadded"


class Run(NamedTuple):
    """Neighbouring texts of the same length."""

    texts: int
    tokens: int  # of each


def runs(lengths: NDArray[np.int64]) -> list[Run]:
    """The runs of lengths that are in order, [n]."""
    starts = np.flatnonzero(np.diff(lengths, prepend=-1))
    counts = np.diff(starts, append=len(lengths))
    return [Run(int(count), int(lengths[start])) for start, count in zip(starts, counts, strict=True)]


def register() -> None:
    """Make the attention known to transformers, under `ATTENTION`."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)


def split(tokens_TD: Any, runs: Sequence[Run]) -> list[Any]:
    """Per run [texts, tokens, D]; views."""
    parts = tokens_TD.split([run.texts * run.tokens for run in runs])
    return [part.view(run.texts, run.tokens, -1) for part, run in zip(parts, runs, strict=True)]


def _attend(  # noqa: PLR0917 - the signature that transformers calls
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, *,
    unpadded: Sequence[Run], **_: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Each text attends to itself. query, key, value [1, H, T, D]; gives [1, T, H, D]."""
    import torch

    heads, size = query.shape[1], query.shape[3]
    rows = [x[0].transpose(0, 1).reshape(-1, heads * size) for x in (query, key, value)]
    out = []
    for run, *parts in zip(unpadded, *(split(row, unpadded) for row in rows), strict=True):
        # [texts, H, tokens, D]
        q, k, v = (part.view(run.texts, run.tokens, heads, size).transpose(1, 2) for part in parts)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scaling)
        out.append(attended.transpose(1, 2).reshape(-1, heads, size))
    return torch.cat(out)[None], None
