"""The exact search against a bare matrix product with top-k, and against FAISS as people use it.

    python -m benchmarks.search_kernel [--rows 1000000] [--dim 768] [--k 3] [--batches 1,8,64,256] [--runs 5]
        [--shard-rows 20000] [--file X.npy]

Measured in turn, several times, so that a machine whose speed drifts drifts for all of them:

- `torch`, `faiss`, `auto`: `ExactIndex` with each back end over memory-mapped shards of as many rows as `index build` writes;
- `q @ x.T, topk` and `x @ q.T, topk`: the same product and top-k written directly in torch, in both orders;
- `1 shard`: `auto` over all rows as one shard, to see what it costs that they are many;
- `IndexFlatIP`: `faiss.IndexFlatIP.search`, the vectors added to it, its settings as FAISS ships them.

The vectors are made up: unit vectors in clusters, as embeddings of passages are, from a seed; queries lie near some of them.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from retrieval.torch_pass import TorchBackend  # isort: skip  before torch: it sets how idle threads wait

import faiss
import numpy as np
import torch

from retrieval.exact_scores import Rows, Scores, Vectors, exact_scores, longest_row
from retrieval.faiss_pass import FaissBackend
from retrieval.index import ExactIndex
from retrieval.row_table import RowTable

Search = Callable[[Vectors, int], object]
DIRECT = ("q @ x.T, topk", "x @ q.T, topk")
_BLOCK = 2**15


def main() -> None:
    """Measure and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--batches", default="1,8,64,256")
    parser.add_argument("--shard-rows", type=int, default=20_000, help="rows of a file of the index")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", type=Path, help="keep the vectors here, and use them if they are there already")
    parser.add_argument("--skip-flat", action="store_true", help="leave out IndexFlatIP, which copies the vectors")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "vectors.npy"
        if not path.exists():
            write_vectors(path, options.rows, options.dim, options.seed)
        measure(path, [int(size) for size in options.batches.split(",")], options)


def write_vectors(path: Path, rows: int, dim: int, seed: int) -> None:
    """Write unit vectors in clusters of some hundred rows, float32 [rows, dim]."""
    vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, dim))
    generator = np.random.default_rng(seed)
    topics = generator.standard_normal((32, dim), dtype=np.float32)
    clusters = generator.standard_normal((max(1, rows // 300), dim), dtype=np.float32)
    clusters += topics[generator.integers(len(topics), size=len(clusters))]
    for start in range(0, rows, _BLOCK):
        block = generator.standard_normal((min(_BLOCK, rows - start), dim), dtype=np.float32)
        block += clusters[generator.integers(len(clusters), size=len(block))]
        vectors[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    vectors.flush()


def make_queries(vectors: Vectors, count: int, seed: int) -> Vectors:
    """Unit vectors near rows of the index, float32 [count, dim]."""
    generator = np.random.default_rng(seed + 1)
    queries = vectors[np.sort(generator.integers(len(vectors), size=count))]
    queries = queries + generator.standard_normal(queries.shape, dtype=np.float32) / np.sqrt(2 * vectors.shape[1])
    return (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)


def measure(path: Path, batches: list[int], options: argparse.Namespace) -> None:
    """Time all ways in turn, check them against one another, and print what came out."""
    opened = time.perf_counter()
    mapped = np.load(path, mmap_mode="r")
    index = ExactIndex(cut(mapped, options.shard_rows))
    opened = time.perf_counter() - opened
    vectors = np.load(path, mmap_mode="c")  # copy on write: torch takes it without a warning; nobody writes
    queries = make_queries(vectors, max(batches), options.seed)
    shards = cut(vectors, options.shard_rows)
    norms = [longest_row(shard) for shard in shards]  # also brings the file into memory
    ways: dict[str, Search] = {
        "auto": ExactIndex(shards, norms=norms).search,
        "1 shard": ExactIndex([vectors], norms=[max(norms)]).search,
        "torch": ExactIndex(shards, TorchBackend("cpu"), norms=norms).search,
        "faiss": ExactIndex(shards, FaissBackend("cpu"), norms=norms).search,
        **direct(torch.from_numpy(vectors)),
    }
    if not options.skip_flat:
        ways["IndexFlatIP"] = flat(vectors)
    print(f"{index.rows} x {index.dim} in {len(shards)} shards, k = {options.k}")
    print(f"{torch.get_num_threads()} threads, median of {options.runs} runs")
    print(f"opened in {opened * 1000:.1f} ms\n")
    print("| batch | " + " | ".join(f"{way}, ms" for way in ways) + " | auto / faster direct (speed) |")
    print("|---|" + "---|" * (len(ways) + 1))
    for size in batches:
        report(size, time_ways(ways, queries[:size], options.k, options.runs))
    check(vectors, queries, options.k, max(norms), options.shard_rows)


def cut(vectors: Vectors, rows: int) -> list[Vectors]:
    """Consecutive shards, as the files of an index are."""
    return [vectors[start : start + rows] for start in range(0, len(vectors), rows)]


def direct(rows: torch.Tensor) -> dict[str, Search]:
    """The product and the top-k, as one writes them in torch."""

    def queries_first(queries: Vectors, k: int) -> object:
        return (torch.from_numpy(queries) @ rows.T).topk(k, dim=1)

    def rows_first(queries: Vectors, k: int) -> object:
        return (rows @ torch.from_numpy(queries).T).T.contiguous().topk(k, dim=1)

    return dict(zip(DIRECT, (queries_first, rows_first), strict=True))


def flat(vectors: Vectors) -> Search:
    """FAISS as it ships; `search` puts its block size back, which our own loader changes for the whole process."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)

    def search(queries: Vectors, k: int) -> object:
        ours, faiss.cvar.distance_compute_blas_database_bs = faiss.cvar.distance_compute_blas_database_bs, 1024
        try:
            return index.search(queries, k)
        finally:
            faiss.cvar.distance_compute_blas_database_bs = ours

    return search


def time_ways(ways: dict[str, Search], queries: Vectors, k: int, runs: int) -> dict[str, list[float]]:
    """Seconds of each run of each way, after one that does not count."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for run in range(runs + 1):
        for way, search in ways.items():
            start = time.perf_counter()
            search(queries, k)
            if run:
                seconds[way].append(time.perf_counter() - start)
    return seconds


def report(size: int, seconds: dict[str, list[float]]) -> None:
    """Print a row: medians, and the median over the runs of how much faster we are than the faster direct way in that run."""
    gains = [min(pair) / ours for *pair, ours in zip(*(seconds[way] for way in (*DIRECT, "auto")), strict=True)]
    medians = " | ".join(f"{statistics.median(values) * 1000:.0f}" for values in seconds.values())
    spread = f"{statistics.median(gains):.2f} ({min(gains):.2f}-{max(gains):.2f})"
    print(f"| {size} | {medians} | {spread} |", flush=True)


def check(vectors: Vectors, queries: Vectors, k: int, norm: float, shard_rows: int) -> None:
    """Recall against the scores by definition, and equality over shards, back ends and batch sizes."""
    queries = queries[:64]
    expected = reference(vectors, queries, k)
    whole = ExactIndex([vectors], norms=[norm]).search(queries, k)
    recall = np.mean([len(set(a) & set(b)) / k for a, b in zip(whole[1], expected[1], strict=True)])
    print(f"\nrecall@{k} against fp32 exact: {recall}")
    equal = [same(whole, expected)]
    for shards in (*(np.array_split(vectors, count) for count in (1, 2, 4)), cut(vectors, shard_rows)):
        for backend in (TorchBackend("cpu"), FaissBackend("cpu"), TorchBackend("cpu", torch.bfloat16)):
            index = ExactIndex(shards, backend, norms=[norm] * len(shards))
            equal += [same(index.search(queries, k), whole), same(index.search(queries[:5], k), whole)]
    print(
        f"equal rows and scores for 1, 2, 4 and all shards; torch float32, torch bfloat16, faiss; batches of 5, 64: {all(equal)}"
    )


def reference(vectors: Vectors, queries: Vectors, k: int) -> tuple[Scores, Rows]:
    """Every pair's score by definition is too slow; those that a float64 product puts in front are enough."""
    best = np.empty((len(queries), 0)), np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(vectors), _BLOCK):
        scores = queries.astype(np.float64) @ vectors[start : start + _BLOCK].T.astype(np.float64)
        rows = np.argpartition(-scores, min(k + 10, scores.shape[1] - 1), axis=1)[:, : k + 10]
        best = (
            np.concatenate([best[0], np.take_along_axis(scores, rows, axis=1)], axis=1),
            np.concatenate([best[1], rows + start], axis=1),
        )
    order = np.lexsort((best[1], -best[0]), axis=-1)[:, :k]
    rows = np.take_along_axis(best[1], order, axis=1)
    numbers = np.repeat(np.arange(len(queries)), k)
    return exact_scores(queries, RowTable([vectors]).wide, numbers, rows.ravel()).reshape(-1, k), rows


def same(found: tuple[Scores, Rows], expected: tuple[Scores, Rows]) -> bool:
    """Whether the first queries of `expected` were answered bit by bit the same."""
    return all(np.array_equal(ours, theirs[: len(ours)]) for ours, theirs in zip(found, expected, strict=True))


if __name__ == "__main__":
    main()
