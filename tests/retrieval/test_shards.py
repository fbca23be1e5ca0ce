import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retrieval_fakes import DIM, FakeEncoder, embed, passages

from retrieval.build import build_index
from retrieval.exact_scores import longest_row
from retrieval.manifest import Manifest, RowRange, StoredType
from retrieval.passage import IndexCorruptError
from retrieval.shards import done_shard, mark_done, open_shards, plan_ranges, write_shard


@given(st.integers(1, 10_000), st.integers(1, 3000))
def test_ranges_cover_all_rows_once(rows: int, shard_rows: int) -> None:
    ranges = plan_ranges(rows, shard_rows)
    assert [row for part in ranges for row in range(part.start, part.stop)] == list(range(rows))
    assert all(part.stop - part.start == shard_rows for part in ranges[:-1])
    assert len({part.file for part in ranges}) == len(ranges)


def test_shards_hold_the_vectors_in_row_order(tmp_path: Path, encoder: FakeEncoder) -> None:
    manifest = build_index(passages(), encoder, tmp_path / "index", shard_rows=130)
    shards = open_shards(tmp_path / "index", manifest)
    assert [shard.shape for shard in shards] == [(130, DIM), (130, DIM), (40, DIM)]
    expected = np.stack([embed(f"{passage.title} {passage.text}") for passage in passages()])
    np.testing.assert_array_equal(np.concatenate(shards), expected)
    with pytest.raises(ValueError, match="read-only"):
        shards[0][0, 0] = 1


@pytest.mark.parametrize(
    "vectors",
    [
        np.zeros((299, DIM), np.float32),
        np.zeros((300, DIM + 1), np.float32),
        np.zeros((300, DIM), np.float16),
        np.zeros((300, DIM), np.float64),
        np.zeros((300, DIM), np.float32).T.copy().T,
    ],
)
def test_a_file_that_is_not_what_the_manifest_says_is_named(built: Path, tmp_path: Path, vectors: np.ndarray) -> None:
    folder = Path(shutil.copytree(built, tmp_path / "copy"))
    np.save(folder / "vectors" / "00000.npy", vectors)
    with pytest.raises(IndexCorruptError, match=r"vectors/00000\.npy: expected float32 \[300, 16\] in C order, found"):
        open_shards(folder, Manifest.load(built))


def test_a_missing_and_a_short_file_are_named(built: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(built, tmp_path / "copy"))
    path = folder / "vectors" / "00000.npy"
    for content in (path.read_bytes()[:-1], b"", b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(IndexCorruptError, match=r"vectors/00000\.npy: not a readable array"):
            open_shards(folder, Manifest.load(built))
    path.unlink()
    with pytest.raises(IndexCorruptError, match=r"vectors/00000\.npy: not a readable array"):
        open_shards(folder, Manifest.load(built))


def test_a_marker_stands_for_a_finished_shard(tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    part = RowRange(file="vectors/00003.npy", start=30, stop=40)
    vectors = np.ones((10, DIM), np.float32)
    vectors[7] = 2.0003  # which float16 makes 2
    shard = write_shard(tmp_path, part, vectors, "float16")
    assert shard.part == part.model_copy(update={"longest": 8.0})
    assert done_shard(tmp_path, part) is None
    mark_done(tmp_path, shard)
    assert done_shard(tmp_path, part) == shard
    assert done_shard(tmp_path, part.model_copy(update={"stop": part.stop + 1})) is None
    assert np.load(tmp_path / part.file).dtype == np.float16
    (tmp_path / "00003.json").write_text("")  # as a disk that lost its power might leave it
    assert done_shard(tmp_path, part) is None


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shard_rows", [7, 130, 1000])
def test_the_manifest_has_the_longest_vector_of_each_shard_as_stored(
    tmp_path: Path, encoder: FakeEncoder, dtype: StoredType, shard_rows: int
) -> None:
    manifest = build_index(passages(), encoder, tmp_path / "index", dtype=dtype, shard_rows=shard_rows)
    shards = open_shards(tmp_path / "index", manifest)
    assert [part.longest for part in manifest.ranges] == [longest_row(shard) for shard in shards]
