import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from retrieval_fakes import SPEC, FakeEncoder

from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.encoder import Vectors
from retrieval.manifest import Manifest, Parity
from retrieval.passage import IndexMismatchError, Passage, SourceError, VectorError
from retrieval.ready_vectors import build_from_vectors
from retrieval.shards import open_shards
from retrieval.sources import ncbi_medcpt, read
from retrieval.sources.ncbi_medcpt import DIM, NcbiMedcptChunks, prove_parity
from retrieval.textstore import TextStore


class WideEncoder(FakeEncoder):
    """As long vectors as MedCPT's, decided by the passage's text."""

    def __init__(self) -> None:
        super().__init__(SPEC.model_copy(update={"dim": DIM}))

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        seeds = [sum(map(ord, passage.title + passage.text)) for passage in passages]
        return np.stack([np.random.default_rng(seed).normal(size=DIM).astype(np.float32) for seed in seeds])


def write(folder: Path, number: int, articles: dict[str, dict[str, Any]], vectors: Vectors | None = None) -> None:
    """A chunk as NCBI lays it out, its vectors made from titles and abstracts unless given."""
    if vectors is None:
        texts = [Passage(id=pmid, title=a["t"], text=a["a"] or " ") for pmid, a in articles.items()]
        vectors = WideEncoder().encode_passages(texts)
    np.save(folder / f"embeds_chunk_{number}.npy", vectors)
    (folder / f"pmids_chunk_{number}.json").write_text(json.dumps(list(articles)))
    (folder / f"pubmed_chunk_{number}.json").write_text(json.dumps(dict(sorted(articles.items()))))


def entries(first: int, count: int) -> dict[str, dict[str, Any]]:
    """Articles in falling order of PMID; each fifth has no abstract."""
    return {
        str(pmid): {
            "d": "20190501",
            "t": f"Title {pmid}",
            "a": f"Abstract of {pmid}." if pmid % 5 else "",
            "m": "Humans",
        }
        for pmid in range(first + count - 1, first - 1, -1)
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        write(tmp_path, number, entries(number * 1000 + 1, 40))
    return tmp_path


def test_passages_in_the_order_of_the_rows(folder: Path) -> None:
    chunks = NcbiMedcptChunks(folder)
    found = list(chunks.passages())
    assert chunks.numbers == (0, 1, 2)
    assert [passage.id for passage in found[:5]] == ["40", "39", "38", "37", "36"]
    assert found[1] == Passage(
        id="39", title="Title 39", text="Abstract of 39.", source="PubMed 39", corpus="pubmed", year=2019
    )
    assert [passage.id for passage in found if not passage.text.strip()][:3] == ["40", "35", "30"]
    assert list(read(f"ncbi-medcpt:{folder}")) == found


def test_chunks_are_ordered_by_number(folder: Path) -> None:
    for number in range(3, 11):
        write(folder, number, entries(number * 1000 + 1, 5))
    assert NcbiMedcptChunks(folder).numbers == tuple(range(11))


@pytest.mark.parametrize("kind", ["embeds_chunk_1.npy", "pmids_chunk_1.json", "pubmed_chunk_1.json"])
def test_a_chunk_that_lacks_a_file_is_named(folder: Path, kind: str) -> None:
    (folder / kind).unlink()
    with pytest.raises(SourceError, match=f"has files of chunk 2, but {kind} is missing"):
        NcbiMedcptChunks(folder)


@pytest.mark.parametrize("left", ["embeds_chunk_2.npy", "pmids_chunk_2.json", "pubmed_chunk_2.json"])
def test_a_file_that_is_left_of_the_last_chunk_shows_that_it_is_missing(folder: Path, left: str) -> None:
    for path in folder.glob("*_chunk_2.*"):
        if path.name != left:
            path.unlink()
    with pytest.raises(SourceError, match=r"has files of chunk 2, but \w+_chunk_2\.\w+, \w+_chunk_2\.\w+ is missing"):
        NcbiMedcptChunks(folder)


def test_a_chunk_that_is_missing_altogether_is_named(folder: Path) -> None:
    for path in folder.glob("*_chunk_1.*"):
        path.unlink()
    with pytest.raises(SourceError, match=r"embeds_chunk_1\.npy, pmids_chunk_1\.json, pubmed_chunk_1\.json is missing"):
        NcbiMedcptChunks(folder)


def test_parity_looks_into_every_chunk(folder: Path) -> None:
    for number in range(3, 8):
        write(folder, number, entries(number * 1000 + 1, 40))
    write(folder, 8, {"8001": {"d": "", "t": "No abstract", "a": "", "m": ""}})
    parity = prove_parity(NcbiMedcptChunks(folder), WideEncoder(), sample=3)
    assert [int(pmid) // 1000 for pmid in parity.ids] == list(range(8))
    vectors = np.load(folder / "embeds_chunk_7.npy")
    np.save(folder / "embeds_chunk_7.npy", np.roll(vectors, 1, axis=0))
    with pytest.raises(IndexMismatchError, match=r"worst PMID 70\d\d"):
        prove_parity(NcbiMedcptChunks(folder), WideEncoder(), sample=3)


@pytest.mark.parametrize("block", [1, 7, 40, 4096])
def test_vectors_are_joined_on_the_pmid(folder: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(ncbi_medcpt, "_BLOCK", block)
    chunks, encoder = NcbiMedcptChunks(folder), WideEncoder()
    blocks = list(chunks.blocks())
    assert {len(passages) for passages, _ in blocks} <= {block, 40 % block or block}
    assert [passage for passages, _ in blocks for passage in passages] == list(chunks.passages())
    for passages, vectors in blocks:
        np.testing.assert_array_equal(vectors, encoder.encode_passages(passages))


def test_an_index_of_ready_vectors_leaves_out_and_counts_articles_without_abstract(
    folder: Path, tmp_path: Path
) -> None:
    chunks, encoder = NcbiMedcptChunks(folder), WideEncoder()
    parity = prove_parity(chunks, encoder)
    cleaner = Cleaner(KEEP_ALL)
    manifest = build_from_vectors(
        chunks.blocks(), encoder.spec, tmp_path / "index", parity=parity, cleaner=cleaner, shard_rows=30
    )
    assert (manifest.corpus.passages, manifest.dropped["empty"], manifest.rows) == (120, 24, 96)
    assert Manifest.load(tmp_path / "index").parity == parity
    with TextStore(tmp_path / "index") as texts:
        expected = encoder.encode_passages(texts.get_many(range(96)))
    np.testing.assert_array_equal(np.concatenate(open_shards(tmp_path / "index", manifest)), expected)


def test_parity_is_proven_and_recorded(folder: Path) -> None:
    parity = prove_parity(NcbiMedcptChunks(folder), WideEncoder(), sample=20, seed=3)
    assert len(set(parity.ids)) == 20
    assert {int(pmid) // 1000 for pmid in parity.ids} == {0, 1, 2}
    assert parity.min_cosine == pytest.approx(1)
    assert parity.max_difference == 0
    assert parity == prove_parity(NcbiMedcptChunks(folder), WideEncoder(), sample=20, seed=3)
    assert parity.ids != prove_parity(NcbiMedcptChunks(folder), WideEncoder(), sample=20, seed=4).ids
    assert Parity.model_validate_json(parity.model_dump_json()) == parity


def test_half_precision_is_near_enough(folder: Path) -> None:
    vectors = np.load(folder / "embeds_chunk_1.npy")
    np.save(folder / "embeds_chunk_1.npy", vectors.astype(np.float16).astype(np.float32))
    assert 0 < prove_parity(NcbiMedcptChunks(folder), WideEncoder()).max_difference < 0.001


def test_an_encoder_of_another_length_is_refused(folder: Path) -> None:
    with pytest.raises(IndexMismatchError, match="they have 768 dimensions, its have 16"):
        prove_parity(NcbiMedcptChunks(folder), FakeEncoder())


@pytest.mark.parametrize("damage", ["shifted", "normalised", "nan"])
def test_other_vectors_are_refused(folder: Path, damage: str) -> None:
    vectors = np.load(folder / "embeds_chunk_1.npy")
    others = {
        "shifted": np.roll(vectors, 1, axis=0),
        "normalised": vectors / np.linalg.norm(vectors, axis=1)[:, None],
        "nan": vectors * np.float32(np.nan),
    }
    np.save(folder / "embeds_chunk_1.npy", others[damage])
    with pytest.raises(IndexMismatchError, match=r"not those of fake: .*worst PMID 10\d\d; encode"):
        prove_parity(NcbiMedcptChunks(folder), WideEncoder())


def test_vectors_that_are_not_finite(folder: Path) -> None:
    vectors = np.load(folder / "embeds_chunk_0.npy")
    vectors[1, 5] = np.nan
    np.save(folder / "embeds_chunk_0.npy", vectors)
    chunks = NcbiMedcptChunks(folder)
    with pytest.raises(VectorError, match="PMID 39"):
        list(chunks.blocks())


def rewrite(path: Path, change: Any) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def test_misaligned_and_damaged_chunks_are_named(folder: Path) -> None:
    def complaint() -> str:
        with pytest.raises(SourceError) as caught:
            list(NcbiMedcptChunks(folder).passages())
        return str(caught.value)

    pmids, articles, embeds = (
        folder / name for name in ("pmids_chunk_1.json", "pubmed_chunk_1.json", "embeds_chunk_1.npy")
    )
    rewrite(pmids, lambda listed: listed[:-1])
    assert "chunk 1 of" in complaint()
    assert "40 vectors, 39 PMIDs" in complaint()
    rewrite(pmids, lambda listed: [*listed, listed[0]])
    assert "a PMID is listed twice" in complaint()
    rewrite(pmids, lambda listed: [*listed[:-1], "555"])
    assert "misaligned: PMID " in complaint()
    write(folder, 1, entries(1001, 40))
    rewrite(articles, lambda found: found | {"1002": {"t": 5}})
    assert "PMID 1002: expected an object with the strings d, t and a" in complaint()
    articles.write_text("{")
    assert "pubmed_chunk_1.json: not readable JSON, or cut off" in complaint()
    articles.write_text("[]")
    assert "expected a JSON dict, found list" in complaint()
    embeds.write_bytes(embeds.read_bytes()[:-10])
    assert "embeds_chunk_1.npy: not a readable array, or cut off" in complaint()
    np.save(embeds, np.zeros((40, 5), dtype=np.float32))
    assert "expected float32 [n, 768], found float32 [40, 5]" in complaint()
    pmids.unlink()
    assert "pmids_chunk_1.json is missing" in complaint()


def test_no_chunks(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no embeds_chunk_"):
        NcbiMedcptChunks(tmp_path)
