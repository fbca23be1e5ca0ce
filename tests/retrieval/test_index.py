from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from retrieval.index import FlatIndex, Vectors
from retrieval.passage import BuildError, IndexCorruptError, QueryError, VectorError

SMALL = st.integers(-2, 2).map(float)  # few values: many equal vectors and many equal scores


def reference(vectors: Vectors, queries: Vectors, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores = (queries.astype(np.float64) @ vectors.astype(np.float64).T).astype(np.float32)
    rows = np.stack([np.lexsort((np.arange(len(vectors)), -line)) for line in scores])[:, :k]
    return np.take_along_axis(scores, rows, axis=1), rows


@settings(deadline=None, max_examples=150)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 200), st.just(3)), elements=SMALL),
    hnp.arrays(np.float32, st.tuples(st.integers(1, 25), st.just(3)), elements=SMALL),
    st.integers(1, 250),
)
def test_agrees_with_brute_force_ties_included(vectors: Vectors, queries: Vectors, k: int) -> None:
    scores, rows = FlatIndex.build(vectors).search(queries, k)
    expected_scores, expected_rows = reference(vectors, queries, k)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_array_equal(scores, expected_scores)
    assert (scores.dtype, rows.dtype) == (np.float32, np.int64)


def test_thousands_of_equal_vectors_come_in_order() -> None:
    vectors = np.tile(np.linspace(-1, 1, 64, dtype=np.float32), (10_000, 1))
    vectors[7777] *= 2
    queries = np.repeat(vectors[:1], 30, axis=0)  # enough for FAISS to multiply matrices
    _, rows = FlatIndex.build(vectors).search(queries, 5)
    np.testing.assert_array_equal(rows, [[7777, 0, 1, 2, 3]] * 30)


def test_the_batch_does_not_change_a_bit_of_the_answer() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((3000, 96), dtype=np.float32)
    vectors[1500:] = vectors[:1500] * np.float32(1 + 1e-7)  # near-ties below the precision of float32 sums
    queries = generator.standard_normal((64, 96), dtype=np.float32)
    index = FlatIndex.build(vectors)
    scores, rows = index.search(queries, 10)
    for number in range(len(queries)):
        alone_scores, alone_rows = index.search(queries[number : number + 1], 10)
        np.testing.assert_array_equal(alone_rows[0], rows[number])
        np.testing.assert_array_equal(alone_scores[0], scores[number])
    np.testing.assert_array_equal(rows, reference(vectors, queries, 10)[1])


def test_k_beyond_the_index_gives_all_rows_and_never_minus_one() -> None:
    index = FlatIndex.build(np.eye(3, dtype=np.float32))
    scores, rows = index.search(np.array([[0, 1, 0]], dtype=np.float32), 100)
    np.testing.assert_array_equal(rows, [[1, 0, 2]])
    np.testing.assert_array_equal(scores, [[1, 0, 0]])


def test_no_queries_give_no_rows() -> None:
    scores, rows = FlatIndex.build(np.eye(3, dtype=np.float32)).search(np.empty((0, 3), dtype=np.float32), 2)
    assert scores.shape == rows.shape == (0, 2)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one(k: int) -> None:
    with pytest.raises(QueryError, match=f"k is {k}"):
        FlatIndex.build(np.eye(3, dtype=np.float32)).search(np.eye(3, dtype=np.float32), k)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_queries_that_are_not_finite(bad: float) -> None:
    queries = np.eye(3, dtype=np.float32)
    queries[1, 2] = bad
    with pytest.raises(VectorError, match="query 1 has NaN or infinity"):
        FlatIndex.build(np.eye(3, dtype=np.float32)).search(queries, 1)


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
        FlatIndex.build(np.full((2, 3), 2, dtype=np.float32)).search(queries, 1)


def test_what_cannot_be_indexed() -> None:
    with pytest.raises(BuildError, match="no vectors"):
        FlatIndex.build(np.empty((0, 3), dtype=np.float32))
    with pytest.raises(VectorError, match="expected float32"):
        FlatIndex.build(np.eye(3))
    with pytest.raises(VectorError, match="NaN or infinity"):
        FlatIndex.build(np.array([[1, np.nan]], dtype=np.float32))


def test_saved_and_loaded(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).standard_normal((50, 8), dtype=np.float32)
    built = FlatIndex.build(vectors)
    built.save(tmp_path / "a")
    FlatIndex.build(vectors).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded = FlatIndex.load(tmp_path / "a")
    assert (loaded.rows, loaded.dim) == (50, 8)
    np.testing.assert_array_equal(loaded.search(vectors, 4)[1], built.search(vectors, 4)[1])


def test_files_that_are_no_index(tmp_path: Path) -> None:
    path = tmp_path / "index.faiss"
    with pytest.raises(IndexCorruptError, match=r"index\.faiss: not a readable FAISS index"):
        FlatIndex.load(path)
    FlatIndex.build(np.eye(4, dtype=np.float32)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with pytest.raises(IndexCorruptError, match=r"index\.faiss: not a readable FAISS index"):
        FlatIndex.load(path)
    path.write_bytes(whole[:-4] + np.float32(np.nan).tobytes())
    with pytest.raises(IndexCorruptError, match=r"index\.faiss: holds NaN or infinity"):
        FlatIndex.load(path)


def test_an_index_of_another_metric(tmp_path: Path) -> None:
    import faiss

    other = faiss.IndexFlatL2(3)
    other.add(np.eye(3, dtype=np.float32))
    faiss.write_index(other, str(tmp_path / "l2"))
    with pytest.raises(IndexCorruptError, match="expected a filled IndexFlatIP, found IndexFlatL2"):
        FlatIndex.load(tmp_path / "l2")
