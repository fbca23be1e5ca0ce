from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.exact_scores import Vectors
from retrieval.index import ExactIndex
from retrieval.passage import IndexMismatchError, QueryError, VectorError
from retrieval.ranker import MissingRowsError
from retrieval.sharded import Claim, Found, ShardedIndex, Span, spans

DIGEST = "d" * 64


class Here:
    """A shard in this process, over real vectors; answers at once, or when told to."""

    def __init__(self, vectors: Vectors, span: Span, replicas: int = 1) -> None:
        self.index, self.span, self.replicas = ExactIndex([vectors[span.start : span.stop]]), span, replicas
        self.fault: Exception | None = None
        self.holding = False
        self.answers = list[Later]()

    def submit(self, claim: Claim, vectors: Vectors, k: int) -> "Later":
        assert claim == Claim(DIGEST, self.span)
        future: Future[Found] = Future()
        if self.fault:
            future.set_exception(self.fault)
        elif not self.holding:
            scores, rows = self.index.search(vectors, k)
            future.set_result((scores, rows + self.span.start))
        self.answers.append(Later(future))
        return self.answers[-1]


class Later:
    def __init__(self, future: "Future[Found]") -> None:
        self.future = future

    def result(self, timeout_s: float) -> Found:
        return self.future.result(timeout_s)


def sharded(
    vectors: Vectors, parts: int, deadline_s: float = 0.05, replicas: int = 1
) -> tuple[ShardedIndex, list[Here]]:
    shards = [(span, Here(vectors, span, replicas)) for span in spans(len(vectors), parts)]
    return ShardedIndex(DIGEST, shards, vectors.shape[1], deadline_s), [shard for _, shard in shards]


def tied(rows: int, dim: int = 4, seed: int = 0) -> Vectors:
    """Few different vectors, so that most scores occur many times."""
    return np.random.default_rng(seed).integers(-1, 2, (rows, dim)).astype(np.float32)


@given(
    rows=st.integers(1, 60),
    parts=st.integers(1, 9),
    k=st.integers(1, 80),
    queries=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_any_number_of_shards_answers_as_one_index_does(rows: int, parts: int, k: int, queries: int, seed: int) -> None:
    vectors, asked = tied(rows, seed=seed), tied(queries, seed=seed + 1)
    scores, found = ExactIndex([vectors]).search(asked, k)
    index, _ = sharded(vectors, min(parts, rows))
    got_scores, got = index.search(asked, k)
    np.testing.assert_array_equal(got, found)
    np.testing.assert_array_equal(got_scores, scores)
    assert (got.dtype, got_scores.dtype) == (np.int64, np.float32)
    assert (index.rows, index.dim) == (rows, 4)


@given(rows=st.integers(1, 1000), parts=st.integers(1, 40))
def test_ranges_cover_the_rows_evenly(rows: int, parts: int) -> None:
    parts = min(rows, parts)
    divided = spans(rows, parts)
    assert [row for span in divided for row in range(*span)] == list(range(rows))
    sizes = {stop - start for start, stop in divided}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("parts", [0, 4])
def test_shards_without_rows_are_refused(parts: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 3"):
        spans(3, parts)


def test_a_failed_shard_is_an_error_that_names_its_rows_and_carries_what_the_others_found() -> None:
    vectors = tied(30)
    index, (_, broken, _) = sharded(vectors, 3)
    broken.fault = RuntimeError("the disk is gone")
    with pytest.raises(MissingRowsError, match="rows 10 to 19: RuntimeError: the disk is gone") as caught:
        index.search(vectors[:2], 5)
    assert caught.value.missing == (Span(10, 20),)
    rest = np.r_[0:10, 20:30]
    scores, rows = ExactIndex([vectors[rest]]).search(vectors[:2], 5)
    np.testing.assert_array_equal([ranking.rows for ranking in caught.value.rankings], rest[rows])
    np.testing.assert_array_equal([ranking.scores for ranking in caught.value.rankings], scores)

    broken.fault = None
    assert index.search(vectors[:2], 5)[1].shape == (2, 5)


def test_all_shards_gone() -> None:
    vectors = tied(9)
    index, shards = sharded(vectors, 3)
    for shard in shards:
        shard.fault = ConnectionError("gone")
    with pytest.raises(MissingRowsError) as caught:
        index.search(vectors[:2], 5)
    assert caught.value.missing == (Span(0, 3), Span(3, 6), Span(6, 9))
    assert [len(ranking.rows) for ranking in caught.value.rankings] == [0, 0]


def test_a_late_shard_is_missing_and_not_asked_again_before_it_has_ended() -> None:
    vectors = tied(20)
    index, (_, slow) = sharded(vectors, 2)
    slow.holding = True
    with pytest.raises(MissingRowsError, match=r"rows 10 to 19: TimeoutError: no answer within 0\.05 s"):
        index.search(vectors[:1], 3)
    for _ in range(3):
        with pytest.raises(MissingRowsError, match="still at work on an earlier search"):
            index.search(vectors[:1], 3)
    assert len(slow.answers) == 1

    slow.holding = False
    slow.answers[0].future.set_exception(RuntimeError("killed"))  # whatever it says, it is too late to be of use
    assert index.search(vectors[:1], 3)[1].shape == (1, 3)


def test_each_replica_of_a_shard_may_be_late_once() -> None:
    vectors = tied(20)
    index, (_, slow) = sharded(vectors, 2, replicas=2)
    slow.holding = True
    for _ in range(4):
        with pytest.raises(MissingRowsError):
            index.search(vectors[:1], 3)
    assert len(slow.answers) == 2

    slow.holding = False
    slow.answers[1].future.set_result(slow.index.search(vectors[:1], 3))
    assert index.search(vectors[:1], 3)[1].shape == (1, 3)


def test_a_shard_that_gives_rows_of_others_is_not_believed() -> None:
    vectors = tied(20)
    index, (_, confused) = sharded(vectors, 2)
    confused.index = ExactIndex([vectors[:11]])
    with pytest.raises(MissingRowsError, match="rows 10 to 19: IndexMismatchError"):
        index.search(vectors[:1], 11)
    confused.fault = IndexMismatchError("another index")
    with pytest.raises(MissingRowsError, match="another index"):
        index.search(vectors[:1], 3)


def test_what_is_wrong_with_the_search_itself_is_not_blamed_on_a_shard() -> None:
    index, _ = sharded(tied(20), 2)
    with pytest.raises(QueryError, match="k is 0"):
        index.search(tied(1), 0)
    with pytest.raises(VectorError, match="3 dimensions"):
        index.search(tied(1, dim=3), 1)
