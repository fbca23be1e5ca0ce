"""Candidates by FAISS: its brute-force search over the shard where it lies, or flat indexes on GPUs."""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.exact_scores import Rows, Stored, Vectors, merge
from retrieval.faiss_loader import load_faiss
from retrieval.index import Pass, rounding
from retrieval.passage import BackendError, FaissInstallError

_CONVERTED_ROWS = 2**15  # of a float16 shard, made float32 at once
_GPU_MOST = 2048  # neighbours that FAISS can find on a GPU


class FaissBackend:
    """The CPU, or all GPUs, to which shards are dealt in turn; each GPU has one thread that owns it."""

    def __init__(self, device: str = "auto") -> None:
        """Raises:
        BackendError: there is no such device.
        FaissInstallError: FAISS cannot be used, or not on a GPU.
        """
        self._faiss = load_faiss()
        self._devices = _devices(self._faiss, device)
        self._owners = [ThreadPoolExecutor(1, f"search-cuda:{number}") for number in self._devices]
        self._resources = [self._faiss.StandardGpuResources() for _ in self._devices]
        self._held = 0

    def hold(self, vectors: Stored) -> Pass:
        if not self._devices:
            return FaissPass(self._faiss, vectors)
        number = self._held % len(self._devices)
        self._held += 1
        device, owner, resources = self._devices[number], self._owners[number], self._resources[number]
        try:
            return owner.submit(FaissGpuPass, self._faiss, resources, device, vectors, owner).result()
        except RuntimeError as error:
            raise BackendError(
                f"cuda:{device} cannot take {len(vectors)} vectors of {vectors.shape[1]} dimensions: {error}; use more GPUs, "
                "a compressed profile, or device cpu"
            ) from error


class FaissPass:
    """Over a shard in main memory: float32 as it lies, float16 in blocks made float32."""

    extra = 32

    def __init__(self, faiss: Any, vectors: Stored) -> None:
        self.error = rounding(vectors.shape[1])
        self._faiss = faiss
        self._vectors = vectors

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[Vectors, Rows]]:
        return partial(self._find, queries, count)

    def _find(self, queries: Vectors, count: int) -> tuple[Vectors, Rows]:
        size = len(self._vectors) if self._vectors.dtype == np.float32 else _CONVERTED_ROWS
        best: list[tuple[Vectors, Rows]] = []
        for start in range(0, len(self._vectors), size):
            block = self._vectors[start : start + size].astype(np.float32, copy=False)
            scores, rows = self._faiss.knn(
                queries, block, min(count, len(block)), metric=self._faiss.METRIC_INNER_PRODUCT
            )
            best = [merge([*best, (scores, rows + start)], count)]
        return best[0]


class FaissGpuPass:
    """Over a flat index on a GPU, float32 or float16 as the shard is, used by the one thread that owns the GPU."""

    extra = 32

    def __init__(self, faiss: Any, resources: Any, device: int, vectors: Stored, owner: Executor) -> None:
        """Copy a shard to the GPU, in one `add`: several of them would need twice the memory. Call it in the owner's thread."""
        half = vectors.dtype == np.float16
        config = faiss.GpuIndexFlatConfig()
        config.device, config.useFloat16 = device, half
        self._index = faiss.GpuIndexFlatIP(resources, vectors.shape[1], config)
        self._index.add(vectors.astype(np.float32, copy=False))
        self._owner = owner
        # With float16 rows FAISS rounds the query too; its length is brought below 1 so that it does not overflow.
        self.error = rounding(vectors.shape[1]) + (2.1 * (2.0**-11 + vectors.shape[1] ** 0.5 * 2.0**-24) if half else 0)

    def begin(self, queries: Vectors, count: int) -> Callable[[], tuple[NDArray[np.float64], Rows]]:
        return self._owner.submit(self._find, queries, min(count, _GPU_MOST)).result

    def _find(self, queries: Vectors, count: int) -> tuple[NDArray[np.float64], Rows]:
        lengths = np.linalg.norm(queries.astype(np.float64), axis=1, keepdims=True)
        scales = 2.0 ** -np.frexp(lengths)[1]
        scores, rows = self._index.search((queries * scales).astype(np.float32), count)
        return scores / scales, rows


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
