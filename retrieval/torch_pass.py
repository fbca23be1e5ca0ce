"""Candidates by torch: a matrix product in blocks of rows, and the best so far.

On a CPU the product reads the shards where they lie, in float32, or in bfloat16 where the hardware multiplies that natively. A
GPU holds a float16 copy of its rows in one piece; queries and rows are scaled by powers of two, so that neither overflows.
"""

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # or idle threads spin; torch reads it once, when it is loaded

import numpy as np
import torch
from numpy.typing import NDArray

from configs.precision import native_bfloat16
from retrieval.candidate_pass import Pass, borders, power_of_two, rounding
from retrieval.exact_scores import Rows, Vectors
from retrieval.passage import BackendError, IndexCorruptError
from retrieval.row_table import RowTable

Found = tuple[torch.Tensor, torch.Tensor]  # rough scores [q, c], rows [q, c]

# Scores of one block: 16 MB on a CPU, so that they are still in its cache when the best are picked; 512 MB on a GPU.
_CPU_SCORES, _GPU_SCORES = 2**22, 2**27
_MAX_ROWS = 2**18  # of a block
_CONVERTED_ROWS = 2**13  # of a block that is converted before it is multiplied
_ALIGNED = 64  # all blocks but the last have a multiple of so many rows


class TorchBackend:
    """The CPU, or all GPUs, each of which has one thread that owns it."""

    def __init__(self, device: str = "auto", dtype: torch.dtype | None = None) -> None:
        """Args:
            dtype: of the product on a CPU, float32 or bfloat16; by default what the hardware multiplies best.

        Raises:
            BackendError: there is no such device.
        """
        self._devices = _devices(device)
        self._dtype = dtype or (torch.bfloat16 if native_bfloat16("cpu") else torch.float32)
        self._owners = [ThreadPoolExecutor(1, f"search-{device}") for device in self._devices if device.type != "cpu"]

    def hold(self, table: RowTable) -> Sequence[Pass]:
        if not self._owners:
            return [CpuPass(table, self._dtype)]
        parts = zip(borders(len(table), len(self._owners)), self._devices, self._owners, strict=False)
        return [_hold(table, part, device, owner) for part, device, owner in parts]


def _hold(table: RowTable, part: tuple[int, int], device: torch.device, owner: Executor) -> Pass:
    try:
        return owner.submit(HalfPass, table, part, device, owner).result()
    except torch.cuda.OutOfMemoryError as error:
        raise BackendError(
            f"{device} has too little memory for {part[1] - part[0]} vectors of {table.dim} dimensions; use more GPUs, a "
            "compressed profile, or retrieval.search_device=cpu"
        ) from error


class CpuPass:
    """Over all shards where they lie: one product after the other into a block of scores, whatever files the rows are in."""

    def __init__(self, table: RowTable, dtype: torch.dtype) -> None:
        """Args:
        dtype: of the product, float32 or bfloat16.
        """
        self.rows, self.extra = len(table), 32 if dtype is torch.float32 else 128
        self._table, self._dtype = table, dtype
        self._shards = _tensors(table)
        converted = any(shard.dtype is not dtype for shard in self._shards)
        self._limit = _CONVERTED_ROWS if converted else _MAX_ROWS

    @property
    def error(self) -> float:
        exact = self._dtype is torch.float32 and torch.get_float32_matmul_precision() == "highest"
        # To bfloat16 are rounded the query, the row and the score; by float32 products of lower precision the first two.
        return rounding(self._table.dim) + (0 if exact else 3.1 * 2.0**-8)

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[Vectors, Rows]]:
        return partial(self._find, queries, count)

    @torch.inference_mode()
    def _find(self, queries: Vectors, count: int) -> tuple[Vectors, Rows]:
        values, rows = _best_of(self._scores(queries), count)
        return values.float().numpy(), rows.numpy()

    def _scores(self, queries: Vectors) -> Iterator[torch.Tensor]:
        turned = torch.from_numpy(queries).to(self._dtype).T
        blocks = list(_blocks(self.rows, len(queries), _CPU_SCORES))
        # One buffer for all blocks: new memory is given out page by page, which takes a third of the time of the product.
        rough = torch.empty(max(stop - start for start, stop in blocks), len(queries), dtype=self._dtype)
        for start, stop in blocks:
            done = 0
            for number, span in self._table.spans(start, stop, self._limit):
                rows = self._shards[number][span]
                # Rows times queries, not the other way round: in this order MKL is twice as fast.
                torch.mm(rows.to(self._dtype), turned, out=rough[done : done + len(rows)])
                done += len(rows)
            yield rough[:done]


class HalfPass:
    """Over a float16 copy of rows on a device, used by the one thread that owns the device."""

    extra = 32

    def __init__(self, table: RowTable, part: tuple[int, int], device: torch.device, owner: Executor) -> None:
        """Copy rows, from the first of `part` up to and without the second, block by block. Call it in the owner's thread.

        Raises:
            IndexCorruptError: NaN or infinity among them, or what is far longer than the table's longest row should be.
        """
        start, stop = part
        self.rows = stop - start
        self._start, self._owner = start, owner
        self._scale = float(power_of_two(np.array(table.longest)))
        self._rows = torch.empty(self.rows, table.dim, dtype=torch.float16, device=device)
        shards, done = _tensors(table), 0
        for number, span in table.spans(start, stop, _MAX_ROWS):
            source = shards[number][span]
            target = self._rows[done : done + len(source)]
            target.copy_(source.to(device, torch.float64) * self._scale)
            if not bool(torch.isfinite(target).all()):
                raise IndexCorruptError(
                    f"rows {start + done} to {start + done + len(source) - 1}: NaN, infinity, or a vector longer than the "
                    "manifest says; run `medverify index verify`, and rebuild the index"
                )
            done += len(source)
        # Query and row are rounded to 11 bits, and by no less than 2^-25 an element; scaled lengths are at least a half.
        self.error = 2.1 * (2.0**-11 + 2 * math.sqrt(table.dim) * 2.0**-25) + rounding(table.dim)

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[NDArray[np.float64], Rows]]:
        return self._owner.submit(self._find, queries, count).result

    @torch.inference_mode()
    def _find(self, queries: Vectors, count: int) -> tuple[NDArray[np.float64], Rows]:
        scales = power_of_two(np.linalg.norm(queries.astype(np.float64), axis=1))[:, np.newaxis]
        turned = torch.from_numpy(queries * scales).to(self._rows.device, torch.float16).T
        blocks = _blocks(self.rows, len(queries), _GPU_SCORES)
        values, rows = _best_of((_float32_product(self._rows[start:stop], turned) for start, stop in blocks), count)
        return values.cpu().numpy() / (scales * self._scale), rows.cpu().numpy() + self._start


def _tensors(table: RowTable) -> list[torch.Tensor]:
    """The shards as tensors that share their memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nor do we write to it
        return [torch.from_numpy(shard) for shard in table.shards]


def _blocks(rows: int, queries: int, scores: int) -> Iterator[tuple[int, int]]:
    """Cut rows into blocks of about `scores` scores; all but the last are aligned."""
    size = max(_ALIGNED, min(_MAX_ROWS, scores // queries) // _ALIGNED * _ALIGNED)
    aligned = rows // _ALIGNED * _ALIGNED
    for start in range(0, aligned, size):
        yield start, min(start + size, aligned)
    if aligned < rows:
        yield aligned, rows


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
