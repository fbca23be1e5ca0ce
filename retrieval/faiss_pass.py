"""Candidates by FAISS: its brute-force search over the shards where they lie, or flat indexes on GPUs."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.candidate_pass import Pass, borders, power_of_two, rounding
from retrieval.exact_scores import Rows, Vectors, merge
from retrieval.faiss_loader import load_faiss
from retrieval.passage import BackendError, FaissInstallError, IndexCorruptError
from retrieval.row_table import RowTable

_CONVERTED_ROWS = 2**15  # of a float16 shard, made float32 at once
_MERGED = 16  # blocks' best are merged together
_GPU_MOST = 2048  # neighbours that FAISS can find on a GPU


class FaissBackend:
    """The CPU, or all GPUs, each of which has one thread that owns it."""

    def __init__(self, device: str = "auto") -> None:
        """Raises:
        BackendError: there is no such device.
        FaissInstallError: FAISS cannot be used, or not on a GPU.
        """
        self._faiss = load_faiss()
        self._devices = _devices(self._faiss, device)
        self._owners = [ThreadPoolExecutor(1, f"search-cuda:{number}") for number in self._devices]
        self._resources = [self._faiss.StandardGpuResources() for _ in self._devices]

    def hold(self, table: RowTable) -> Sequence[Pass]:
        if not self._devices:
            return [FaissPass(self._faiss, table)]
        parts = borders(len(table), len(self._devices))
        return [self._hold(table, start, stop, number) for number, (start, stop) in enumerate(parts)]

    def _hold(self, table: RowTable, start: int, stop: int, number: int) -> Pass:
        device, owner, resources = self._devices[number], self._owners[number], self._resources[number]
        try:
            return owner.submit(
                FaissGpuPass, self._faiss, resources, device, table, (start, stop), owner=owner
            ).result()
        except RuntimeError as error:
            raise BackendError(
                f"cuda:{device} cannot take {stop - start} vectors of {table.dim} dimensions: {error}; use more GPUs, "
                "a compressed profile, or retrieval.search_device=cpu"
            ) from error


class FaissPass:
    """Over all shards in main memory: float32 as it lies, float16 in blocks made float32."""

    extra = 32

    def __init__(self, faiss: Any, table: RowTable) -> None:
        self.rows, self.error = len(table), rounding(table.dim)
        self._faiss, self._table = faiss, table
        self._limit = self.rows if all(shard.dtype == np.float32 for shard in table.shards) else _CONVERTED_ROWS

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[Vectors, Rows]]:
        return partial(self._find, queries, count)

    def _find(self, queries: Vectors, count: int) -> tuple[Vectors, Rows]:
        best, start = list[tuple[Vectors, Rows]](), 0
        for number, span in self._table.spans(0, self.rows, self._limit):
            block = self._table.shards[number][span].astype(np.float32, copy=False)
            scores, rows = self._faiss.knn(
                queries, block, min(count, len(block)), metric=self._faiss.METRIC_INNER_PRODUCT
            )
            best.append((scores, _found(rows) + start))
            start += len(block)
            if len(best) == _MERGED:
                best = [merge(best, count)]
        return merge(best, count)


class FaissGpuPass:
    """Over a flat index on a GPU, float32, or float16 if all shards are, used by the one thread that owns the GPU."""

    extra = 32

    def __init__(
        self, faiss: Any, resources: Any, device: int, table: RowTable, part: tuple[int, int], *, owner: Executor
    ) -> None:
        """Copy rows, from the first of `part` up to and without the second, to the GPU. Call it in the owner's thread.

        They are added at once, from a float32 copy in main memory: adding them bit by bit would need twice the GPU's memory.
        """
        start, stop = part
        self.rows = stop - start
        self._start, self._owner = start, owner
        half = all(shard.dtype == np.float16 for shard in table.shards)
        rows, done = np.empty((self.rows, table.dim), dtype=np.float32), 0
        for number, span in table.spans(start, stop, _CONVERTED_ROWS):
            block = table.shards[number][span]
            rows[done : done + len(block)] = block
            done += len(block)
        config = faiss.GpuIndexFlatConfig()
        config.device, config.useFloat16 = device, half
        self._index = faiss.GpuIndexFlatIP(resources, table.dim, config)
        self._index.add(rows)
        # With float16 rows FAISS rounds the query too; its length is brought below 1 so that it does not overflow.
        self.error = rounding(table.dim) + (2.1 * (2.0**-11 + table.dim**0.5 * 2.0**-24) if half else 0)

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[NDArray[np.float64], Rows]]:
        return self._owner.submit(self._find, queries, min(count, _GPU_MOST)).result

    def _find(self, queries: Vectors, count: int) -> tuple[NDArray[np.float64], Rows]:
        scales = power_of_two(np.linalg.norm(queries.astype(np.float64), axis=1))[:, np.newaxis]
        scores, rows = self._index.search((queries * scales).astype(np.float32), count)
        return scores / scales, _found(rows) + self._start


def _found(rows: Rows) -> Rows:
    """Rows as FAISS gave them, which stands -1 for a row that it did not find: it leaves out NaN.

    Raises:
        IndexCorruptError: there is one.
    """
    if (rows < 0).any():
        raise IndexCorruptError(
            "the index holds NaN; run `medverify index verify` to see which file is damaged, and rebuild it"
        )
    return rows


def _devices(faiss: Any, setting: str) -> list[int]:
    """Numbers of the GPUs to use; none for the CPU."""
    gpus = faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0
    kind, _, number = setting.partition(":")
    if setting == "cpu" or (setting == "auto" and not gpus):
        return []
    if kind not in {"auto", "cuda"} or (number and not number.isdecimal()):
        raise BackendError(f"{setting!r} is not a device; expected auto, cpu, cuda or cuda:N")
    if not hasattr(faiss, "StandardGpuResources"):
        raise FaissInstallError(
            "this FAISS has no GPU support; run `pip uninstall -y faiss-cpu && pip install faiss-gpu-cuvs`"
        )
    if gpus <= int(number or 0):
        raise BackendError(f"there is no device {setting}: FAISS sees {gpus} GPU(s)")
    return [int(number)] if number else list(range(gpus))
