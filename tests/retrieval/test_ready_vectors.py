from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from retrieval_fakes import DIM, SPEC, FakeEncoder, embed, passages

from retrieval.build import build_index
from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.encoder_spec import ModelIdentity
from retrieval.manifest import Manifest, StoredType
from retrieval.passage import BuildError, Passage, VectorError
from retrieval.ready_vectors import Block, build_from_vectors
from retrieval.shards import open_shards
from retrieval.textstore import TextStore


def blocks(found: list[Passage], size: int = 64) -> Iterator[Block]:
    for start in range(0, len(found), size):
        block = found[start : start + size]
        yield block, np.stack([embed(f"{passage.title} {passage.text}") for passage in block])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shard_rows", [50, 100, 1000])
def test_ready_vectors_give_the_files_that_encoding_gives(
    tmp_path: Path, encoder: FakeEncoder, dtype: StoredType, shard_rows: int
) -> None:
    found = list(passages())
    ready = build_from_vectors(blocks(found), SPEC, tmp_path / "ready", dtype=dtype, shard_rows=shard_rows)
    encoded = build_index(found, encoder, tmp_path / "encoded", dtype=dtype, shard_rows=shard_rows)
    assert ready.arithmetic is None
    assert ready == Manifest.load(tmp_path / "ready") == encoded.model_copy(update={"arithmetic": None})


class Lookahead(Cleaner):
    """A cleaner that reads on before it decides."""

    def kept(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        return iter(list(super().kept(passages)))


@pytest.mark.parametrize("cleaner", [Cleaner, Lookahead])
def test_a_dropped_passage_takes_its_vector_with_it(tmp_path: Path, cleaner: type[Cleaner]) -> None:
    texts = ["one", " ", "two", "one", "two", "three", "one"]
    found = [Passage(id=str(number), text=text) for number, text in enumerate(texts)]
    vectors = np.arange(len(found) * DIM, dtype=np.float32).reshape(-1, DIM)
    manifest = build_from_vectors([(found, vectors)], SPEC, tmp_path / "index", cleaner=cleaner(KEEP_ALL), shard_rows=2)
    assert {reason: count for reason, count in manifest.dropped.items() if count} == {"empty": 1, "duplicate": 3}
    np.testing.assert_array_equal(np.concatenate(open_shards(tmp_path / "index", manifest)), vectors[[0, 2, 5]])
    with TextStore(tmp_path / "index") as store:
        assert [passage.id for passage in store.get_many(range(3))] == ["0", "2", "5"]


class Backwards(Cleaner):
    def kept(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        return reversed(list(passages))


def few() -> list[Passage]:
    return list(passages(3))


@pytest.mark.parametrize(
    ("given", "error", "complaint"),
    [
        ([(few(), np.zeros((2, DIM), np.float32))], VectorError, r"3 passages: .* found float32 \[2, 16\]"),
        ([(few(), np.zeros((3, 5), np.float32))], VectorError, "16 dimensions"),
        ([(few(), np.zeros((3, DIM)))], VectorError, "float64"),
        ([(few(), np.full((3, DIM), np.nan, np.float32))], VectorError, "row 0 has NaN"),
        ([(few() + few(), np.zeros((6, DIM), np.float32))], BuildError, "two passages with the id 'p0'"),
        ([], BuildError, "nothing to index"),
    ],
)
def test_unusable_blocks_leave_nothing(
    tmp_path: Path, given: list[Block], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        build_from_vectors(given, SPEC, tmp_path / "index")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_cleaner_out_of_order(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="out of order"):
        build_from_vectors(blocks(few()), SPEC, tmp_path / "index", cleaner=Backwards())


def test_a_recipe_without_digest(tmp_path: Path) -> None:
    loose = SPEC.model_copy(update={"query_model": ModelIdentity(name="x")})
    with pytest.raises(BuildError, match="not pinned"):
        build_from_vectors(blocks(few()), loose, tmp_path / "index")
