from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retrieval_fakes import FakeEncoder, passages

from retrieval.bm25 import Bm25Ranker, add_bm25
from retrieval.build import build_index
from retrieval.hybrid import HybridRanker, fuse
from retrieval.manifest import Manifest
from retrieval.passage import EncoderError, IndexMismatchError, QueryError
from retrieval.profiles import open_ranker
from retrieval.ranker import Ranker, Ranking
from retrieval.rerank import RerankRanker
from retrieval.stats import Histogram
from retrieval.textstore import TextStore


def ranking(rows: Sequence[int]) -> Ranking:
    return Ranking(np.array(rows, dtype=np.int64), np.linspace(1, 0, len(rows), dtype=np.float32))


class Fixed:
    """Ranks the same rows for every query, and remembers how many it was asked for."""

    profile = "fixed"

    def __init__(self, rows: Sequence[int], digest: str = "d") -> None:
        self.rows, self.digest = rows, digest
        self.asked = list[int]()

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        self.asked.append(k)
        return [ranking(self.rows[:k]) for _ in queries]


def test_the_sums_of_the_paper() -> None:
    fused = fuse([ranking([7, 3, 5]), ranking([3, 9])])
    assert fused.rows.tolist() == [3, 7, 9, 5]
    expected = [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63]
    np.testing.assert_array_equal(fused.scores, np.array(expected, dtype=np.float32))


def test_equal_ranks_are_equal_scores_whoever_gave_them() -> None:
    fused = fuse([ranking([9, 4, 1]), ranking([4, 1, 9]), ranking([1, 9, 4])])
    assert fused.rows.tolist() == [1, 4, 9]
    assert len(set(fused.scores.tolist())) == 1


def test_what_found_nothing_changes_nothing() -> None:
    alone, beside = fuse([ranking([5, 2])]), fuse([ranking([5, 2]), ranking([])])
    assert alone.rows.tolist() == beside.rows.tolist() == [5, 2]
    assert alone.scores.tolist() == beside.scores.tolist()
    assert fuse([ranking([]), ranking([])]).rows.shape == (0,)


@given(st.lists(st.lists(st.integers(0, 12), unique=True, max_size=12), min_size=1, max_size=4))
def test_fusion_is_that_of_exact_fractions(rows: list[list[int]]) -> None:
    sums = dict[int, Fraction]()
    for one in rows:
        for rank, row in enumerate(one, start=1):
            sums[row] = sums.get(row, Fraction(0)) + Fraction(1, 60 + rank)
    rounded = {row: np.float32(float(total)) for row, total in sums.items()}
    fused = fuse([ranking(one) for one in rows])
    assert fused.rows.tolist() == sorted(rounded, key=lambda row: (-rounded[row], row))
    assert fused.scores.tolist() == [rounded[row] for row in fused.rows.tolist()]


def test_time_is_counted_for_each_ranker() -> None:
    class Timed(Fixed):
        def __init__(self) -> None:
            super().__init__([1, 2])
            self.stages = {"encode": Histogram(), "search": Histogram()}

    timed = Timed()
    hybrid = HybridRanker([timed, Fixed([2, 3])])
    hybrid.rank(["q"], 3)
    assert {name: histogram.count for name, histogram in hybrid.stages.items()} == {
        "encode": 0,
        "search": 0,
        "fixed": 1,
    }
    assert hybrid.stages["encode"] is timed.stages["encode"]  # its own counts are shown, not a copy


def test_the_depth_does_not_depend_on_k() -> None:
    one, two = Fixed(range(100)), Fixed(range(99, -1, -1))
    hybrid: Ranker = HybridRanker([one, two], depth=20)
    (short,), (long,) = hybrid.rank(["q"], 3), hybrid.rank(["q"], 1000)
    assert set(one.asked + two.asked) == {20}
    assert len(long.rows) == 40
    assert short.rows.tolist() == long.rows[:3].tolist()
    assert short.scores.tolist() == long.scores[:3].tolist()


def test_the_digest_covers_rankers_and_depth() -> None:
    a, b = Fixed([1], "a"), Fixed([1], "b")
    digests = {HybridRanker(*given).digest for given in [([a, b],), ([b, a],), ([a, b], 16), ([a],)]}
    assert len(digests) == 4


def test_k_below_one_is_refused() -> None:
    with pytest.raises(QueryError, match="k is 0"):
        HybridRanker([Fixed([1])]).rank(["q"], 0)


# ---- profiles by name ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexes") / "both"
    build_index(passages(), FakeEncoder(), folder)
    add_bm25(folder)
    return folder


def test_profiles_have_their_names_and_digests(both: Path) -> None:
    manifest = Manifest.load(both)
    with TextStore(both) as texts:
        rankers = [open_ranker(name, both, manifest, FakeEncoder(), texts) for name in ("dense", "bm25", "hybrid")]
        queries = ["drug 17", "drug 17 lowers marker 3"]
        found = [ranker.rank(queries, 5) for ranker in rankers]
    assert [ranker.profile for ranker in rankers] == ["dense", "bm25", "hybrid"]
    assert rankers[0].digest == manifest.digest
    assert len({ranker.digest for ranker in rankers}) == 3
    assert found[1][0].rows[0] == 17
    for number in range(len(queries)):
        dense, words = (ranker.rank(queries, 32)[number] for ranker in rankers[:2])
        fused = fuse([dense, words])
        assert found[2][number].rows.tolist() == fused.rows[:5].tolist()


def test_a_profile_whose_parts_are_absent_is_refused(built: Path) -> None:
    manifest = Manifest.load(built)
    with TextStore(built) as texts:
        for profile in ("bm25", "hybrid"):
            with pytest.raises(IndexMismatchError, match="add-bm25"):
                open_ranker(profile, built, manifest, FakeEncoder(), texts)  # type: ignore[arg-type]
        with pytest.raises(EncoderError, match=r"retrieval\.cross_encoder"):
            open_ranker("rerank", built, manifest, FakeEncoder(), texts)


def test_rerank_reads_what_dense_found(both: Path) -> None:
    class ById:
        digest = "e" * 64

        def score(self, pairs: Sequence[tuple[str, object]]) -> np.ndarray:
            return np.array([-int(passage.id[1:]) for _, passage in pairs], dtype=np.float32)  # type: ignore[attr-defined]

    manifest = Manifest.load(both)
    with TextStore(both) as texts:
        ranker = open_ranker("rerank", both, manifest, FakeEncoder(), texts, cross_encoder=ById())
        assert isinstance(ranker, RerankRanker)
        (found,) = ranker.rank(["drug 17"], 5)
        (dense,) = open_ranker("dense", both, manifest, FakeEncoder(), texts).rank(["drug 17"], 32)
    assert found.rows.tolist() == sorted(dense.rows.tolist())[:5]
    assert Bm25Ranker.open(both, manifest).digest != ranker.digest
