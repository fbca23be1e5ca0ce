import fcntl
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from medverify.cli.app import app
from retrieval.compress import compress
from retrieval.compressed import CompressedIndex, read_recipe, read_recipes
from retrieval.exact_scores import Stored
from retrieval.index import ExactIndex
from retrieval.manifest import Manifest
from retrieval.passage import BuildError, IndexCorruptError, IndexMismatchError, QueryError, VectorError

BASE = "d" * 64


@pytest.fixture(scope="module")
def shards() -> list[Stored]:
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((40, 32))[generator.integers(40, size=3000)]
    vectors = (vectors + generator.standard_normal((3000, 32)) / 2).astype(np.float16)
    return [vectors[:1000].astype(np.float32), vectors[1000:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, shards: list[Stored]) -> Path:
    """Three compressed copies. Read-only: tests that damage one copy it."""
    folder = tmp_path_factory.mktemp("index")
    for profile in ("sq8", "pq8", "ivf16"):
        compress(folder, BASE, shards, profile)
    return folder


def queries(count: int = 50) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, 32), dtype=np.float32)


@pytest.mark.parametrize("profile", ["sq8", "pq8", "ivf16"])
def test_what_is_found_has_exact_scores_in_exact_order(folder: Path, shards: list[Stored], profile: str) -> None:
    scores, rows = CompressedIndex.open(folder, profile, BASE, shards).search(queries(), 10)
    exact_scores, exact_rows = ExactIndex(shards).search(queries(), 3000)
    for number in range(len(rows)):
        known = dict(zip(exact_rows[number], exact_scores[number], strict=True))
        assert [known[row] for row in rows[number]] == list(scores[number])
        assert list(rows[number]) == sorted(rows[number], key=lambda row: (-known[row], row))
    found = np.mean([len(set(a) & set(b[:10])) / 10 for a, b in zip(rows, exact_rows, strict=True)])
    assert found > {"sq8": 0.999, "pq8": 0.7, "ivf16": 0.1}[profile]


def test_recall_is_measured(folder: Path) -> None:
    recalls = {profile: read_recipe(folder, profile).recall for profile in ("sq8", "pq8", "ivf16")}
    assert all(recall.queries == 200 for recall in recalls.values())
    assert recalls["sq8"].at_3 == 1
    assert 0.9 < recalls["sq8"].plain_at_10 < 1
    assert recalls["pq8"].plain_at_10 < recalls["pq8"].at_10 <= 1


def test_the_same_seed_gives_the_same_bytes(folder: Path, shards: list[Stored], tmp_path: Path) -> None:
    for profile in ("sq8", "pq8", "ivf16"):
        assert compress(tmp_path, BASE, shards, profile) == read_recipe(folder, profile)
    assert sorted(path.name for path in (tmp_path / "compressed").iterdir()) == sorted(
        f"{profile}.{suffix}" for profile in ("sq8", "pq8", "ivf16") for suffix in ("faiss", "json")
    )


@pytest.mark.parametrize("rescore", [True, False])
def test_lists_that_hold_too_little_are_made_up_for(folder: Path, shards: list[Stored], rescore: bool) -> None:
    scores, rows = CompressedIndex.open(folder, "ivf16", BASE, shards, rescore=rescore).search(queries(), 5000)
    assert (np.sort(rows, axis=1) == np.arange(3000)).all()
    assert (np.diff(scores, axis=1) <= 0).all()


def test_ties_come_in_the_order_of_rows(tmp_path: Path) -> None:
    vectors = np.tile(np.linspace(-1, 1, 8, dtype=np.float32), (50, 1))
    compress(tmp_path, BASE, [vectors], "sq8")
    for rescore in (True, False):
        index = CompressedIndex.open(tmp_path, "sq8", BASE, [vectors], rescore=rescore)
        np.testing.assert_array_equal(index.search(vectors[:2], 5)[1], [[0, 1, 2, 3, 4]] * 2)


def test_what_cannot_be_searched_for(folder: Path, shards: list[Stored]) -> None:
    index = CompressedIndex.open(folder, "sq8", BASE, shards)
    assert (index.rows, index.dim) == (3000, 32)
    assert index.search(queries(0), 3)[1].shape == (0, 3)
    with pytest.raises(QueryError, match="k is 0"):
        index.search(queries(), 0)
    with pytest.raises(VectorError, match="query 0 has NaN"):
        index.search(queries() * np.float32(np.nan), 1)


def test_what_cannot_be_compressed(shards: list[Stored], tmp_path: Path) -> None:
    for profile, complaint in {"zip": "expected sq8", "pq5": "divisor", "ivf4096": "at least 4096 vectors"}.items():
        with pytest.raises(BuildError, match=complaint):
            compress(tmp_path, BASE, shards, profile)
    assert not list(tmp_path.iterdir())


def test_damage_and_mismatch_are_noticed(folder: Path, shards: list[Stored], tmp_path: Path) -> None:
    with pytest.raises(IndexMismatchError, match="used with eeee"):
        CompressedIndex.open(folder, "sq8", "e" * 64, shards)
    with pytest.raises(IndexMismatchError):
        CompressedIndex.open(folder, "sq8", BASE, shards[:1])
    with pytest.raises(IndexCorruptError, match=r"medverify index compress .* --profile pq16"):
        CompressedIndex.open(folder, "pq16", BASE, shards)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    path = copy / "compressed" / "sq8.faiss"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(IndexCorruptError, match=r"sq8\.faiss: its contents"):
        CompressedIndex.open(copy, "sq8", BASE, shards)
    path.write_bytes(content[:-1])
    with pytest.raises(IndexCorruptError, match=r"sq8\.faiss: \d+ bytes"):
        CompressedIndex.open(copy, "sq8", BASE, shards)
    path.unlink()
    with pytest.raises(IndexCorruptError, match=r"sq8\.faiss: cannot be read"):
        CompressedIndex.open(copy, "sq8", BASE, shards)
    path.with_suffix(".json").write_text(json.dumps({"profile": "sq8"}))
    with pytest.raises(IndexCorruptError, match=r"sq8\.json: not a recipe"):
        CompressedIndex.open(copy, "sq8", BASE, shards)


def test_two_do_not_compress_at_once(shards: list[Stored], tmp_path: Path) -> None:
    with (tmp_path / ".compressed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BuildError, match="another process is compressing"):
            compress(tmp_path, BASE, shards, "sq8")
    assert compress(tmp_path, BASE, shards, "sq8").profile == "sq8"


def test_killed_between_its_two_files_a_copy_is_absent_not_another_ones(
    folder: Path, shards: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of an older index is replaced, and the process dies when the new vectors are in place."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))

    def publish_and_die(temporary: Path, path: Path) -> None:
        temporary.rename(path)
        raise KeyboardInterrupt

    monkeypatch.setattr("retrieval.compress.publish", publish_and_die)
    with pytest.raises(KeyboardInterrupt):
        compress(copy, "e" * 64, shards, "sq8", seed=1)
    assert [recipe.profile for recipe in read_recipes(copy)] == ["ivf16", "pq8"]
    with pytest.raises(IndexCorruptError, match=r"cannot be read .*index compress"):
        CompressedIndex.open(copy, "sq8", BASE, shards)


def test_a_vector_that_is_no_number_is_no_answer(folder: Path, shards: list[Stored]) -> None:
    broken = [shard.copy() for shard in shards]
    broken[1][:] = np.nan
    with pytest.raises(IndexCorruptError, match="NaN"):
        CompressedIndex.open(folder, "sq8", BASE, broken).search(queries(), 1500)


def test_the_command(built: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(built, tmp_path / "index"))
    result = CliRunner().invoke(app, ["index", "compress", str(folder), "--profile", "pq4"])
    assert result.exit_code == 0, result.output
    assert "recall@3" in result.output
    assert read_recipe(folder, "pq4").base == Manifest.load(folder).digest
    result = CliRunner().invoke(app, ["index", "compress", str(folder), "--profile", "ivf9999"])
    assert result.exit_code == 2
