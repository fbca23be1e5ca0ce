"""Attention of single new tokens over long slots, float32 on a CPU.

A decoding step asks three or so query heads for each key head to read all keys and values of their slot: the work is reading
memory. torch's own attention treats it as many small matrix products and reaches a quarter of the memory's speed. This kernel,
compiled when it is first used and kept on disk, takes half the time (docs/benchmarks.md). What a row gets depends on that row
alone.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALONE_BYTES = 1_000_000  # of keys: fewer are read before another thread has woken up


def attend_single_tokens(  # noqa: PLR0917
    query_BHGD: Tensor,
    keys: Tensor,
    values: Tensor,
    slots_B: NDArray[np.int64],
    lengths_B: NDArray[np.int64],
    scale: float,
) -> Tensor:
    """Attention of one new token of each of B sequences.

    Args:
        query_BHGD: float32, contiguous; G query heads share each of H key heads.
        keys, values: float32 [slots, H, capacity, D], read in place.
        slots_B: the slot of each sequence.
        lengths_B: how many tokens of it are seen, the new one included; at least 1.

    Returns:
        float32 [B, H, G, D].
    """
    out_BHGD = torch.empty_like(query_BHGD)
    given = (query_BHGD.numpy(), keys.numpy(), values.numpy(), slots_B, lengths_B, np.float32(scale), out_BHGD.numpy())
    pairs = len(slots_B) * keys.shape[1]
    worth_it = int(lengths_B.sum()) * keys[0, :, 0].nbytes > _ALONE_BYTES
    threads = min(torch.get_num_threads(), pairs) if worth_it else 1
    bounds = [pairs * part // threads for part in range(threads + 1)]
    parts = [partial(_attend, *given, first, last) for first, last in pairwise(bounds)]
    others = [_helpers(threads - 1).submit(part) for part in parts[1:]]
    parts[0]()
    for other in others:
        other.result()
    return out_BHGD


@cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Threads beside the one that asks. Not numba's: what it runs in parallel in the process that compiled it differs in the
    last bits from what other processes read from disk."""
    return ThreadPoolExecutor(max(count, 1), thread_name_prefix="attention")


@numba.njit(fastmath={"contract"}, inline="always")  # type: ignore[untyped-decorator]
def _exp(x: Any) -> Any:
    """e^x for float32 x <= 0, relative error below 2e-7; never less than e^-87.

    Ours, for which `expf` a kernel gets depends on whether it was just compiled or read from disk, and they differ in the last
    bit. Range reduction and polynomial as usual (Cephes); loops over it vectorise.
    """
    x = np.float32(-87) if x < np.float32(-87) else x  # NaN stays
    power = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    rest = x - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    tail = np.float32(1.9875691500e-4)
    tail = tail * rest + np.float32(1.3981999507e-3)
    tail = tail * rest + np.float32(8.3334519073e-3)
    tail = tail * rest + np.float32(4.1665795894e-2)
    tail = tail * rest + np.float32(1.6666665459e-1)
    tail = tail * rest + np.float32(5.0000001201e-1)
    return (tail * rest * rest + rest + np.float32(1)) * np.int32((np.int32(power) + 127) << 23).view(np.float32)


# Sums may be reordered, so that they vectorise; but a NaN must stay one, for by it a broken model is known.
@numba.njit(fastmath={"reassoc", "contract", "nsz", "arcp"}, cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _attend(  # noqa: PLR0917
    query: Any, keys: Any, values: Any, slots: Any, lengths: Any, scale: Any, out: Any, first: int, last: int
) -> None:
    """Pairs of sequence and key head from `first` to before `last`."""
    _, key_heads, group, size = query.shape
    for pair in range(first, last):
        sequence, head = pair // key_heads, pair % key_heads
        length = lengths[sequence]
        key, value = keys[slots[sequence], head], values[slots[sequence], head]
        weights = np.empty((group, length), np.float32)
        for token in range(length):
            for member in range(group):
                product = np.float32(0)
                for axis in range(size):
                    product += query[sequence, head, member, axis] * key[token, axis]
                weights[member, token] = product * scale
        for member in range(group):
            highest = weights[member].max()
            total = np.float32(0)
            for token in range(length):
                weights[member, token] = _exp(weights[member, token] - highest)
                total += weights[member, token]
            weights[member] /= total
            out[sequence, head, member] = 0
        for token in range(length):
            for member in range(group):
                weight = weights[member, token]
                for axis in range(size):
                    out[sequence, head, member, axis] += weight * value[token, axis]
