import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from retrieval_fakes import SPEC, FakeEncoder, passages

from retrieval.bm25 import add_bm25
from retrieval.build import build_index
from retrieval.check import damaged_files, encode_again
from retrieval.compress import compress
from retrieval.encoder import TransformerEncoder, Vectors
from retrieval.encoder_spec import Arithmetic
from retrieval.manifest import Manifest, file_entry
from retrieval.passage import IndexCorruptError, IndexMismatchError, Passage
from retrieval.shards import open_shards
from retrieval.sources import starter


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded") / "index"
    build_index(passages(), FakeEncoder(), folder, shard_rows=70)
    return folder


@pytest.fixture
def folder(sharded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sharded, tmp_path / "index"))


FILES = ["passages.jsonl", "offsets.npy", *(f"vectors/{number:05}.npy" for number in range(5))]


def damage(folder: Path) -> list[str]:
    return damaged_files(folder, Manifest.load(folder), lambda done, total: None)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", [0.0, 0.3, 0.999])
def test_a_file_that_was_cut_or_changed_is_named(folder: Path, name: str, where: float) -> None:
    assert damage(folder) == []
    whole = (folder / name).read_bytes()
    position = int(len(whole) * where)

    (folder / name).write_bytes(whole[:position])
    [complaint] = damage(folder)
    assert f"{name}: {position} bytes, the manifest says {len(whole)}" in complaint

    flipped = bytearray(whole)
    flipped[position] ^= 1
    (folder / name).write_bytes(flipped)
    [complaint] = damage(folder)
    assert f"{name}: its contents do not match" in complaint

    (folder / name).unlink()
    [complaint] = damage(folder)
    assert f"{name}: cannot be read" in complaint


def test_compressed_copies_and_the_word_index_are_checked_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest.load(folder)
    for profile in ("sq8", "pq4"):
        compress(folder, manifest.digest, open_shards(folder, manifest), profile)
    add_bm25(folder)
    assert damage(folder) == []
    for module in ("compressed", "bm25"):  # as if they were large
        monkeypatch.setattr(f"retrieval.{module}.ALWAYS_VERIFIED_BYTES", 0)
    words = max((folder / "bm25").glob("*.npy"), key=lambda path: path.stat().st_size)
    for path in (words, folder / "compressed" / "sq8.faiss"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    (folder / "compressed" / "pq4.json").write_text("{}")
    complaints = damage(folder)
    assert len(complaints) == 3
    for name in ("sq8.faiss: its contents", "pq4.json: not a recipe", f"{words.name}: its contents"):
        assert any(name in complaint for complaint in complaints)


def test_copies_and_words_of_another_index_are_named(folder: Path, encoder: FakeEncoder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    manifest = build_index(passages(40), encoder, other)
    compress(other, manifest.digest, open_shards(other, manifest), "sq8")
    add_bm25(other)
    for name in ("compressed", "bm25"):
        shutil.copytree(other / name, folder / name)
    assert ["made from the index" in complaint for complaint in damage(folder)] == [True, True]


@pytest.mark.parametrize(("built", "here"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_vectors_may_differ_by_what_the_coarser_arithmetic_explains(folder: Path, built: str, here: str) -> None:
    class Rounded(FakeEncoder):
        def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
            return super().encode_passages(passages) * np.float32(1.01)

    encoder = Rounded()
    encoder.arithmetic = encoder.arithmetic.model_copy(update={"precision": here})
    manifest = Manifest.load(folder)
    arithmetic = Arithmetic(precision=built, batch_size=1, device="cpu")
    sample = encode_again(folder, manifest.model_copy(update={"arithmetic": arithmetic}), encoder, 20, seed=1)
    assert (sample.wrong, sample.allowed) == ((), 0.05)


def test_every_damaged_file_is_named_and_progress_reaches_the_end(folder: Path) -> None:
    for name in FILES[::2]:
        (folder / name).write_bytes(b"")
    reports: list[tuple[int, int]] = []
    complaints = damaged_files(folder, Manifest.load(folder), lambda *report: reports.append(report))
    assert [any(name in complaint for complaint in complaints) for name in FILES] == [True, False] * 3 + [True]
    assert len(reports) == len(FILES)
    assert reports[-1][0] == reports[-1][1] == sum(entry.size for entry in Manifest.load(folder).files.values())


def test_rows_encoded_again_are_as_stored(folder: Path, encoder: FakeEncoder) -> None:
    manifest = Manifest.load(folder)
    sample = encode_again(folder, manifest, encoder, 50, seed=1)
    assert (sample.rows, sample.largest, sample.wrong) == (50, 0.0, ())
    assert encode_again(folder, manifest, encoder, 1000, seed=1).rows == 300
    with pytest.raises(IndexMismatchError, match="pooling"):
        encode_again(folder, manifest, FakeEncoder(SPEC.model_copy(update={"pooling": "cls"})), 5, seed=1)


def test_vectors_of_other_passages_are_noticed_though_their_checksums_match(folder: Path, encoder: FakeEncoder) -> None:
    """Somebody joined texts and vectors one row off, and wrote a manifest that says so."""
    path, manifest = folder / "vectors/00002.npy", Manifest.load(folder)
    vectors = np.load(path)
    np.save(path, np.roll(vectors, 1, axis=0))
    manifest = manifest.model_copy(update={"files": manifest.files | {"vectors/00002.npy": file_entry(path)}})
    assert damaged_files(folder, manifest, lambda done, total: None) == []
    sample = encode_again(folder, manifest, encoder, 300, seed=1)
    assert sample.largest > sample.allowed
    assert set(sample.wrong) <= set(range(140, 210))
    assert len(sample.wrong) > 60


@pytest.mark.parametrize("factor", [0.5, 2])
def test_another_length_of_the_longest_vector_is_noticed(folder: Path, factor: float) -> None:
    manifest = Manifest.load(folder)
    parts = list(manifest.ranges)
    parts[3] = parts[3].model_copy(update={"longest": (parts[3].longest or 0) * factor})
    manifest.model_copy(update={"ranges": tuple(parts)}).save(folder)
    [complaint] = damage(folder)
    assert "vectors/00003.npy: its longest vector has length" in complaint


def test_an_encoder_that_gives_no_numbers_agrees_with_nothing(folder: Path) -> None:
    class NanEncoder(FakeEncoder):
        def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
            return super().encode_passages(passages) * np.float32(np.nan)

    assert len(encode_again(folder, Manifest.load(folder), NanEncoder(), 5, seed=1).wrong) == 5


def test_a_text_store_of_another_length(folder: Path, encoder: FakeEncoder, tmp_path: Path) -> None:
    build_index(passages(10), encoder, tmp_path / "other")
    for name in ("passages.jsonl", "offsets.npy"):
        shutil.copy(tmp_path / "other" / name, folder)
    with pytest.raises(IndexCorruptError, match="10 passages and 300 rows"):
        encode_again(folder, Manifest.load(folder), encoder, 5, seed=1)


def test_a_real_model_in_half_precision(tmp_path: Path, minilm: TransformerEncoder) -> None:
    few = [passage for passage, _ in zip(starter(), range(24), strict=False)]
    manifest = build_index(few, minilm, tmp_path / "index", dtype="float16", shard_rows=10)
    sample = encode_again(tmp_path / "index", manifest, minilm, 12, seed=3)
    assert sample.wrong == ()
    assert 0 < sample.largest < sample.allowed  # both grow where passages are encoded in bfloat16
