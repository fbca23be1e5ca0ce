"""Exact and compressed vectors behind the profiles: what is opened, what is read, and which digest tells them apart."""

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest
from retrieval_fakes import SPEC, FakeEncoder, passages

from retrieval.compress import compress
from retrieval.local import LocalRetriever, open_index
from retrieval.manifest import Manifest
from retrieval.passage import IndexCorruptError, IndexMismatchError
from retrieval.ready_vectors import build_from_vectors
from retrieval.shards import open_shards


@pytest.fixture(scope="module")
def folder(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of made-up passages, with a compressed copy."""
    folder = Path(shutil.copytree(built, tmp_path_factory.mktemp("compressed") / "index"))
    manifest = Manifest.load(folder)
    compress(folder, manifest.digest, open_shards(folder, manifest), "sq8")
    return folder


def test_a_compressed_copy_answers_under_a_digest_of_its_own(folder: Path) -> None:
    async def ask(vectors: str) -> tuple[str, list[str]]:
        retriever = LocalRetriever.open(folder, FakeEncoder(), vectors=vectors)
        hits = await retriever.search("Drug 17 lowers marker", 3)
        await retriever.aclose()
        return retriever.digest, [hit.passage.id for hit in hits]

    exact, compressed = asyncio.run(ask("exact")), asyncio.run(ask("sq8"))
    assert exact[0] == Manifest.load(folder).digest != compressed[0]
    assert exact[1] == compressed[1]


def test_what_a_compressed_copy_finds_does_not_depend_on_how_much_is_asked_for(folder: Path) -> None:
    ranker, texts, _ = open_index(folder, FakeEncoder(), vectors="sq8")
    with texts:
        [few], [many], [most] = (ranker.rank(["drug 9 kidneys"], k) for k in (3, 10, 300))
    np.testing.assert_array_equal(few.rows, many.rows[:3])
    np.testing.assert_array_equal(many.rows, most.rows[:10])
    assert (len(few.rows), len(most.rows)) == (3, 32)


def test_a_copy_that_is_not_there_or_is_of_another_index_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(IndexCorruptError, match=r"index compress .* --profile pq8"):
        open_index(folder, FakeEncoder(), vectors="pq8")
    other = tmp_path / "other"
    vectors = FakeEncoder().encode_passages(list(passages(50)))
    build_from_vectors([(list(passages(50)), vectors)], SPEC, other)
    shutil.copytree(folder / "compressed", other / "compressed")
    with pytest.raises(IndexMismatchError, match="made from the index"):
        open_index(other, FakeEncoder(), vectors="sq8")


def _resident(path: Path) -> int:
    """Bytes of a mapped file that this process has looked at."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    sizes = [
        int(line.split()[1]) * 1024
        for number, first in enumerate(lines)
        if first.endswith(str(path))
        for line in lines[number : number + 8]
        if line.startswith("Rss:")
    ]
    assert sizes, f"{path} is not mapped"
    return sum(sizes)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux to say which pages are in memory")
def test_opening_an_index_does_not_read_its_vectors(tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"dim": 1024})
    found = list(passages(4000))
    vectors = np.random.default_rng(0).standard_normal((len(found), spec.dim), dtype=np.float32)

    class Wide(FakeEncoder):
        def encode_queries(self, queries):  # type: ignore[no-untyped-def]
            return vectors[: len(queries)]

    build_from_vectors([(found, vectors)], spec, tmp_path / "index")
    ranker, texts, _ = open_index(tmp_path / "index", Wide(spec))
    with texts:
        path = tmp_path / "index" / "vectors" / "00000.npy"
        assert _resident(path) < 2**20 < path.stat().st_size // 8
        [found_rows] = ranker.rank(["fever"], 1)
        assert found_rows.rows.tolist() == [0]
        assert _resident(path) > path.stat().st_size // 2


def test_searches_that_needed_more_candidates_are_counted(folder: Path) -> None:
    retriever = LocalRetriever.open(folder, FakeEncoder())
    asyncio.run(retriever.aclose())
    assert {"widen", "scan"} <= retriever.stats.stages.keys()
