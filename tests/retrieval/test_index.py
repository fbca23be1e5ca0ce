import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from retrieval.candidate_pass import Backend, Pass, borders
from retrieval.exact_scores import Stored, Vectors, longest_row, merge
from retrieval.faiss_pass import FaissBackend
from retrieval.index import ExactIndex
from retrieval.passage import BackendError, BuildError, FaissInstallError, IndexCorruptError, QueryError, VectorError
from retrieval.row_table import RowTable
from retrieval.torch_pass import HalfPass, TorchBackend


class HalfBackend:
    """What GPUs do, on the CPU."""

    def __init__(self, devices: int) -> None:
        self._owners = [ThreadPoolExecutor(1) for _ in range(devices)]

    def hold(self, table: RowTable) -> Sequence[Pass]:
        parts = zip(borders(len(table), len(self._owners)), self._owners, strict=False)
        return [HalfPass(table, part, torch.device("cpu"), owner) for part, owner in parts]


class CudaBackend:
    """Real GPUs, looked for when they are needed."""

    def hold(self, table: RowTable) -> Sequence[Pass]:
        return TorchBackend("cuda").hold(table)


BACKENDS: dict[str, Backend] = {
    "faiss": FaissBackend("cpu"),
    "float32": TorchBackend("cpu", torch.float32),
    "bfloat16": TorchBackend("cpu", torch.bfloat16),
    "float16": HalfBackend(1),
    "float16 on 3 devices": HalfBackend(3),
}
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
every_backend = pytest.mark.parametrize(
    "backend", [*BACKENDS.values(), pytest.param(CudaBackend(), marks=on_gpu)], ids=[*BACKENDS, "cuda"]
)

SMALL = st.integers(-2, 2).map(float)  # few values: many equal vectors and many equal scores
WIDE = st.floats(-1e4, 1e4, width=16)


def reference(vectors: Stored, queries: Vectors, k: int) -> tuple[np.ndarray, np.ndarray]:
    """By the definition, pair by pair."""
    scores = np.stack([(vectors.astype(np.float64) * query).sum(axis=1) for query in queries]).astype(np.float32)
    rows = np.stack([np.lexsort((np.arange(len(vectors)), -line)) for line in scores])[:, :k]
    return np.take_along_axis(scores, rows, axis=1), rows


def assert_exact(index: ExactIndex, vectors: Stored, queries: Vectors, k: int) -> None:
    scores, rows = index.search(queries, k)
    expected_scores, expected_rows = reference(vectors, queries, k)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_array_equal(scores, expected_scores)
    assert (scores.dtype, rows.dtype) == (np.float32, np.int64)


def cut(vectors: Stored, borders: Sequence[int]) -> list[Stored]:
    places = sorted({0, len(vectors), *(border % len(vectors) for border in borders)})
    return [vectors[start:stop] for start, stop in pairwise(places)]


@every_backend
@pytest.mark.parametrize("elements", [SMALL, WIDE], ids=["ties", "wide"])
@settings(max_examples=60)
@given(data=st.data())
def test_agrees_with_the_definition(backend: Backend, elements: st.SearchStrategy[float], data: st.DataObject) -> None:
    dim = data.draw(st.sampled_from([1, 3, 8]))
    dtype = data.draw(st.sampled_from([np.float32, np.float16]))
    vectors = data.draw(hnp.arrays(dtype, st.tuples(st.integers(1, 200), st.just(dim)), elements=elements))
    queries = data.draw(hnp.arrays(np.float32, st.tuples(st.integers(1, 25), st.just(dim)), elements=elements))
    shards = cut(vectors, data.draw(st.lists(st.integers(0, 199), max_size=4)))
    assert_exact(ExactIndex(shards, backend), vectors, queries, data.draw(st.integers(1, 250)))


@every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_neither_shards_nor_batch_change_a_bit(backend: Backend, dtype: type) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((6000, 96), dtype=np.float32)
    vectors[3000:] = vectors[:3000] * np.float32(1 + 1e-7)  # near-ties below the precision of float32 sums
    stored = vectors.astype(dtype)
    queries = generator.standard_normal((64, 96), dtype=np.float32)
    whole = ExactIndex([stored], backend)
    assert_exact(whole, stored, queries, 10)
    scores, rows = whole.search(queries, 10)
    for index in (ExactIndex(cut(stored, places), backend) for places in ([2999], [1, 77, 5000], range(0, 6000, 61))):
        for size in (1, 7, 64):
            for start in range(0, 64, size):
                part_scores, part_rows = index.search(queries[start : start + size], 10)
                np.testing.assert_array_equal(part_rows, rows[start : start + size])
                np.testing.assert_array_equal(part_scores, scores[start : start + size])


@every_backend
@pytest.mark.parametrize("factor", [1e-30, 1e-20, 1, 1e15])
def test_any_magnitude(backend: Backend, factor: float) -> None:
    generator = np.random.default_rng(1)
    vectors = (generator.standard_normal((500, 32)) * factor).astype(np.float32)
    queries = (
        generator.standard_normal((20, 32), dtype=np.float32) * np.geomspace(1e-6, 1e6, 20, dtype=np.float32)[:, None]
    )
    assert_exact(ExactIndex(cut(vectors, [100]), backend), vectors, queries, 5)


@every_backend
def test_a_hundred_thousand_equal_vectors_come_in_order_and_take_no_memory(backend: Backend) -> None:
    vectors = np.tile(np.linspace(-1, 1, 24, dtype=np.float32), (100_000, 1))
    vectors[77_777] *= 2
    index = ExactIndex(cut(vectors, [50_000]), backend)
    queries = np.repeat(vectors[:1], 30, axis=0) * np.linspace(1, 2, 30, dtype=np.float32)[:, None]
    tracemalloc.start()
    try:
        _, rows = index.search(queries, 5)
        assert tracemalloc.get_traced_memory()[1] < 120e6
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(rows, [[77_777, 0, 1, 2, 3]] * 30)


@every_backend
def test_rows_that_get_better_and_better(backend: Backend) -> None:
    vectors = np.outer(np.arange(1, 20_001), np.ones(4)).astype(np.float32)
    _, rows = ExactIndex([vectors], backend).search(np.ones((3, 4), dtype=np.float32), 4)
    np.testing.assert_array_equal(rows, [[19_999, 19_998, 19_997, 19_996]] * 3)


@every_backend
def test_k_beyond_the_index_gives_all_rows_and_never_minus_one(backend: Backend) -> None:
    index = ExactIndex(cut(np.eye(3, dtype=np.float32), [1]), backend)
    scores, rows = index.search(np.array([[0, 1, 0]], dtype=np.float32), 100)
    np.testing.assert_array_equal(rows, [[1, 0, 2]])
    np.testing.assert_array_equal(scores, [[1, 0, 0]])


def test_float32_products_of_lower_precision_are_allowed_for() -> None:
    generator = np.random.default_rng(2)
    vectors = generator.standard_normal((4000, 64), dtype=np.float32)
    index = ExactIndex([vectors], TorchBackend("cpu", torch.float32))
    torch.set_float32_matmul_precision("medium")
    try:
        assert_exact(index, vectors, vectors[:40], 7)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_mapped_shards_are_searched_where_they_lie(tmp_path: Path) -> None:
    vectors = np.random.default_rng(3).standard_normal((5000, 64), dtype=np.float32)
    np.save(tmp_path / "shard.npy", vectors)
    mapped = np.load(tmp_path / "shard.npy", mmap_mode="r")
    assert_exact(ExactIndex([mapped], norms=[longest_row(vectors)]), vectors, vectors[:3], 4)


def test_more_queries_than_are_worked_on_at_once() -> None:
    vectors = np.random.default_rng(4).standard_normal((700, 16), dtype=np.float32)
    assert_exact(ExactIndex([vectors]), vectors, vectors, 3)


def test_merged_parts_are_in_order() -> None:
    left = np.array([[3, 1]], dtype=np.float32), np.array([[4, 2]])
    right = np.array([[3, 3, 0]], dtype=np.float32), np.array([[0, 9, 1]])
    scores, rows = merge([left, right], 4)
    np.testing.assert_array_equal(rows, [[0, 4, 9, 2]])
    np.testing.assert_array_equal(scores, [[3, 3, 3, 1]])
    assert merge([left], 9)[1].shape == (1, 2)


def test_no_queries_give_no_rows() -> None:
    scores, rows = ExactIndex([np.eye(3, dtype=np.float32)]).search(np.empty((0, 3), dtype=np.float32), 2)
    assert scores.shape == rows.shape == (0, 2)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one(k: int) -> None:
    with pytest.raises(QueryError, match=f"k is {k}"):
        ExactIndex([np.eye(3, dtype=np.float32)]).search(np.eye(3, dtype=np.float32), k)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_queries_that_are_not_finite(bad: float) -> None:
    queries = np.eye(3, dtype=np.float32)
    queries[1, 2] = bad
    with pytest.raises(VectorError, match="query 1 has NaN or infinity"):
        ExactIndex([np.eye(3, dtype=np.float32)]).search(queries, 1)


@pytest.mark.parametrize(
    ("queries", "complaint"),
    [
        (np.zeros((1, 4), dtype=np.float32), "4 dimensions, the index has 3"),
        (np.zeros((1, 3)), "expected float32"),
        (np.zeros(3, dtype=np.float32), "expected float32"),
        (np.full((1, 3), 3e38, dtype=np.float32), "overflow"),
    ],
)
def test_queries_of_the_wrong_kind(queries: np.ndarray, complaint: str) -> None:
    with pytest.raises(VectorError, match=complaint):
        ExactIndex([np.full((2, 3), 2, dtype=np.float32)]).search(queries, 1)


def test_what_cannot_be_indexed() -> None:
    whole = np.eye(3, dtype=np.float32)
    with pytest.raises(BuildError, match="no vectors"):
        ExactIndex([])
    with pytest.raises(BuildError, match="no vectors"):
        ExactIndex([whole, whole[:0]])
    with pytest.raises(VectorError, match="expected float32 or float16"):
        ExactIndex([np.eye(3)])  # type: ignore[list-item]
    with pytest.raises(VectorError, match=r"\[2, 3\] dimensions"):
        ExactIndex([whole, np.eye(2, dtype=np.float32)])
    with pytest.raises(VectorError, match="2 norms for 1 shards"):
        ExactIndex([whole], norms=[1, 1])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_index_that_is_not_finite(bad: float) -> None:
    vectors = np.array([[1, bad]], dtype=np.float32)
    with pytest.raises(IndexCorruptError, match="NaN, infinity"):
        ExactIndex([vectors]).search(np.ones((1, 2), dtype=np.float32), 1)


def damaged(rows: int, change: float) -> tuple[list[Stored], Vectors, list[float]]:
    """Shards of unit vectors, one of which was damaged after its length was noted, queries and norms."""
    vectors = np.random.default_rng(5).standard_normal((rows, 16), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = np.abs(vectors[:4]) + np.float32(0.1)
    queries[:, 3] = 2
    vectors[rows // 2, 3] = change
    shards = cut(vectors, [rows // 4, rows - 1])
    return shards, queries, [1.0] * len(shards)


@every_backend
@pytest.mark.parametrize("change", [np.nan, np.inf, 1e30, 3.0])
def test_vectors_damaged_after_they_were_written_are_no_answer(backend: Backend, change: float) -> None:
    """The norms are the manifest's: they do not show the damage. Every row is within the candidates' number."""
    shards, queries, norms = damaged(8, change)
    with pytest.raises(IndexCorruptError, match="rebuild"):
        ExactIndex(shards, backend, norms=norms).search(queries, 3)


@pytest.mark.parametrize("backend", [each for name, each in BACKENDS.items() if name != "faiss"])
@pytest.mark.parametrize("change", [np.nan, np.inf, 1e30])
def test_damage_among_many_rows_is_no_answer(backend: Backend, change: float) -> None:
    shards, queries, norms = damaged(9000, change)
    with pytest.raises(IndexCorruptError, match="rebuild"):
        ExactIndex(shards, backend, norms=norms).search(queries, 3)


def test_faiss_passes_over_nan_and_loses_no_other_row() -> None:
    shards, queries, norms = damaged(9000, np.nan)
    vectors = np.concatenate(shards)
    vectors[4500] = -queries.mean(axis=0)  # never among the best
    scores, rows = ExactIndex(shards, FaissBackend("cpu"), norms=norms).search(queries, 3)
    expected_scores, expected_rows = reference(vectors, queries, 3)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_array_equal(scores, expected_scores)


@every_backend
def test_near_ties_beyond_the_candidates_are_settled_by_more_of_them_and_counted(backend: Backend) -> None:
    generator = np.random.default_rng(6)
    vectors = generator.standard_normal((4000, 24), dtype=np.float32)
    vectors[:200] = vectors[0]
    index = ExactIndex(cut(vectors, [50, 3000]), backend)
    assert_exact(index, vectors, 9 * vectors[:2], 5)
    assert (index.stages["widen"].count, index.stages["scan"].count) == (1, 0)
    vectors[:3000] = vectors[0]
    index = ExactIndex(cut(vectors, [50, 3000]), backend)
    assert_exact(index, vectors, 9 * vectors[:2], 5)
    assert (index.stages["widen"].count, index.stages["scan"].count) == (1, 1)


@pytest.mark.parametrize("backend", ["torch", "faiss"])
@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "meta"])
def test_devices_that_are_not_there(backend: str, device: str) -> None:
    with pytest.raises((BackendError, FaissInstallError), match=r"device|GPU"):
        ExactIndex([np.eye(3, dtype=np.float32)], backend, device)


def test_an_unknown_back_end() -> None:
    with pytest.raises(BackendError, match="'annoy' is not a search back end"):
        ExactIndex([np.eye(3, dtype=np.float32)], "annoy")
