"""Candidates by torch: a matrix product in blocks of rows, and the best so far.

On a CPU the product reads the shard where it lies, in float32, or in bfloat16 where the hardware multiplies that natively. A GPU
holds a float16 copy of its shards; queries and rows are scaled by powers of two, so that neither overflows.
"""

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # or idle threads spin; torch reads it once, when it is loaded

import numpy as np
import torch
from numpy.typing import NDArray

from retrieval.exact_scores import Rows, Stored, Vectors
from retrieval.index import Pass, rounding
from retrieval.passage import BackendError

Found = tuple[torch.Tensor, torch.Tensor]  # rough scores [q, c], rows [q, c]

# Scores of one block: 16 MB on a CPU, so that they are still in its cache when the best are picked; 512 MB on a GPU.
_CPU_SCORES, _GPU_SCORES = 2**22, 2**27
_MAX_ROWS = 2**18  # of a block
_CONVERTED_ROWS = 2**13  # of a block that is converted before it is multiplied
_ALIGNED = 64  # all blocks but the last have a multiple of so many rows


class TorchBackend:
    """One device, or all GPUs, to which shards are dealt in turn; each GPU has one thread that owns it."""

    def __init__(self, device: str = "auto", dtype: torch.dtype | None = None) -> None:
        """Args:
            dtype: of the product on a CPU, float32 or bfloat16; by default what the hardware multiplies best.

        Raises:
            BackendError: there is no such device.
        """
        self._devices = _devices(device)
        self._dtype = dtype or _native_dtype()
        self._owners = [ThreadPoolExecutor(1, f"search-{device}") for device in self._devices if device.type != "cpu"]
        self._held = 0

    def hold(self, vectors: Stored) -> Pass:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nor do we write to it
            rows = torch.from_numpy(vectors)
        if not self._owners:
            return CpuPass(rows, self._dtype)
        number = self._held % len(self._devices)
        self._held += 1
        device, owner = self._devices[number], self._owners[number]
        try:
            return owner.submit(HalfPass, rows, device, owner).result()
        except torch.cuda.OutOfMemoryError as error:
            raise BackendError(
                f"{device} has too little memory for {len(rows)} vectors of {rows.shape[1]} dimensions; use more GPUs, a "
                "compressed profile, or device cpu"
            ) from error


class CpuPass:
    """Over a shard where it lies."""

    def __init__(self, rows: torch.Tensor, dtype: torch.dtype) -> None:
        """Args:
        rows: float32 or float16 [n, dim], sharing the shard's memory.
        dtype: float32 or bfloat16.
        """
        self.extra = 32 if dtype is torch.float32 else 128
        self._rows = rows
        self._dtype = dtype

    @property
    def error(self) -> float:
        exact = self._dtype is torch.float32 and torch.get_float32_matmul_precision() == "highest"
        # To bfloat16 are rounded the query, the row and the score; by float32 products of lower precision the first two.
        return rounding(self._rows.shape[1]) + (0 if exact else 3.1 * 2.0**-8)

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[Vectors, Rows]]:
        return partial(self._find, queries, count)

    @torch.inference_mode()
    def _find(self, queries: Vectors, count: int) -> tuple[Vectors, Rows]:
        turned = torch.from_numpy(queries).to(self._dtype).T
        limit = _MAX_ROWS if self._rows.dtype is self._dtype else _CONVERTED_ROWS
        blocks = list(_blocks(self._rows, len(queries), _CPU_SCORES, limit))
        # One buffer for all blocks: new memory is given out page by page, which takes a third of the time of the product.
        rough = torch.empty(max(map(len, blocks)), len(queries), dtype=self._dtype)
        # Rows times queries, not the other way round: in this order MKL is twice as fast.
        scores = (torch.mm(block.to(self._dtype), turned, out=rough[: len(block)]) for block in blocks)
        values, rows = _best_of(scores, count)
        return values.float().numpy(), rows.numpy()


class HalfPass:
    """Over a float16 copy of a shard on a device, used by the one thread that owns the device."""

    extra = 32

    def __init__(self, rows: torch.Tensor, device: torch.device, owner: Executor) -> None:
        """Copy float32 or float16 [n, dim] to the device, block by block. Call it in the owner's thread."""
        self._scale = _power_of_two(max(float(block.to(device).abs().max()) for block in _blocks(rows, 1, _MAX_ROWS)))
        self._rows = torch.empty(rows.shape, dtype=torch.float16, device=device)
        for source, target in zip(_blocks(rows, 1, _MAX_ROWS), _blocks(self._rows, 1, _MAX_ROWS), strict=True):
            target.copy_(source.to(device, torch.float64) * self._scale)
        self._owner = owner
        dim = rows.shape[1]
        # Query and row are rounded to 11 bits, and by no less than 2^-25 an element; scaled lengths are at least a half.
        self.error = 2.1 * (2.0**-11 + 2 * math.sqrt(dim) * 2.0**-25) + rounding(dim)

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[NDArray[np.float64], Rows]]:
        return self._owner.submit(self._find, queries, count).result

    @torch.inference_mode()
    def _find(self, queries: Vectors, count: int) -> tuple[NDArray[np.float64], Rows]:
        scales = np.array([_power_of_two(length) for length in np.linalg.norm(queries.astype(np.float64), axis=1)])
        turned = torch.from_numpy(queries * scales[:, np.newaxis]).to(self._rows.device, torch.float16).T
        blocks = (_float32_product(block, turned) for block in _blocks(self._rows, len(queries), _GPU_SCORES))
        values, rows = _best_of(blocks, count)
        return values.cpu().numpy() / (scales[:, np.newaxis] * self._scale), rows.cpu().numpy()


def _blocks(rows: torch.Tensor, queries: int, scores: int, limit: int = _MAX_ROWS) -> Iterator[torch.Tensor]:
    """Cut rows into blocks of at most `limit` rows and about `scores` scores; all but the last are aligned."""
    size = max(_ALIGNED, min(limit, scores // queries) // _ALIGNED * _ALIGNED)
    aligned = len(rows) // _ALIGNED * _ALIGNED
    for start in range(0, aligned, size):
        yield rows[start : min(start + size, aligned)]
    if aligned < len(rows):
        yield rows[aligned:]


def _float32_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The product of float16 matrices, accumulated and returned in float32."""
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


def _best_of(blocks: Iterable[torch.Tensor], count: int) -> Found:
    """The best `count` of all blocks, each rough scores [b, q] of successive rows: values and rows [q, c], best first."""
    best: Found | None = None
    start = 0
    for rough in blocks:
        values, rows = _top(rough, min(count, len(rough)))
        rows += start
        start += len(rough)
        if best is not None:
            together = torch.cat([best[0], values], dim=1)
            values, places = together.topk(min(count, together.shape[1]), dim=1)
            rows = torch.cat([best[1], rows], dim=1).gather(1, places)
        best = values, rows
    if best is None:
        raise ValueError("there are no rows")
    return best


def _top(rough: torch.Tensor, count: int) -> Found:
    """The best `count` of a block [b, q]: values and rows [q, count], best first.

    They lie within the `count` chunks of rows whose greatest scores are best, which leaves little to choose from.
    """
    size, queries = rough.shape
    chunk = min(_ALIGNED, 2 ** (int(math.log2(size / count)) // 2))
    if chunk < 4 or size % chunk:
        return rough.T.contiguous().topk(count, dim=1)
    chunks = rough.view(-1, chunk, queries)
    chosen = chunks.amax(1).T.contiguous().topk(count, dim=1, sorted=False).indices  # [q, count]
    within = chunks.gather(0, chosen.T.unsqueeze(1).expand(-1, chunk, -1)).permute(2, 0, 1).reshape(queries, -1)
    values, places = within.topk(count, dim=1)
    return values, chosen.gather(1, places // chunk) * chunk + places % chunk


def _power_of_two(length: float) -> float:
    """The factor that brings a length into [1/2, 1); 1 for 0."""
    return 2.0 ** -math.frexp(length)[1]


def _devices(setting: str) -> list[torch.device]:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        device = torch.device(("cuda" if count else "cpu") if setting == "auto" else setting)
    except RuntimeError as error:
        raise BackendError(f"{setting!r} is not a device; expected auto, cpu, cuda or cuda:N") from error
    if device.type not in {"cpu", "cuda"}:
        raise BackendError(f"{setting!r} is not a device to search on; expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= count:
        raise BackendError(f"there is no device {setting}: torch sees {count} GPU(s)")
    if device.type == "cuda" and device.index is None:
        return [torch.device("cuda", number) for number in range(count)]
    return [device]


def _native_dtype() -> torch.dtype:
    """bfloat16 where the CPU multiplies it natively; elsewhere it is several times slower than float32."""
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32
