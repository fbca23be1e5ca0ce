"""The real parts: BM25 over the judged answers of LiveQA, and the command over a corpus of a few lines with a real encoder."""

import json
import shutil
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from eval.beir import Benchmark, read_beir
from eval.profiles import ensure_words, index_of, measure
from retrieval.bm25 import Bm25Ranker
from retrieval.encoder import Vectors
from retrieval.encoder_spec import Arithmetic, EncoderSpec, ModelIdentity
from retrieval.manifest import MANIFEST_FILE, Manifest
from retrieval.passage import Passage
from retrieval.ranker import Ranking
from retrieval.textstore import TextStore

pytest.importorskip("faiss")
pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")


class CountingEncoder:
    """Vectors that mean nothing; counts what it encodes."""

    def __init__(self, digest: str = "a" * 64) -> None:
        model = ModelIdentity(name="none", digest=digest)
        self.spec = EncoderSpec(
            name="none", query_model=model, passage_model=model, pooling="mean", normalize=False, query_max_tokens=8,
            passage_max_tokens=8, passage_format="joined", dim=2,
        )  # fmt: skip
        self.arithmetic = Arithmetic(precision="float32", batch_size=1, device="cpu")
        self.encoded = 0

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        return np.ones((len(queries), 2), dtype=np.float32)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        self.encoded += len(passages)
        return np.ones((len(passages), 2), dtype=np.float32)

    def encode_blocks(self, blocks: Iterable[Sequence[Passage]]) -> Generator[Vectors, None, None]:
        for block in blocks:
            yield self.encode_passages(block)


DATA = Benchmark(
    name="small",
    documents=(Passage(id="d1", text="uric acid"), Passage(id="d2", text="vitamin D"), Passage(id="d3", text="gout")),
    queries={"q1": "gout", "q2": "vitamin"},
    grades={"q1": {"d3": 2, "d1": 1}, "q2": {"d2": 1}},
    unanswerable=0,
    merged=0,
    blank=0,
)


class Scripted:
    profile, digest = "scripted", "d"

    def __init__(self, answers: dict[str, list[int]]) -> None:
        self.answers = answers

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        assert k == 10
        found = [np.array(self.answers[query], dtype=np.int64) for query in queries]
        return [Ranking(rows, -rows.astype(np.float32)) for rows in found]


def test_the_index_is_built_once_for_the_same_documents_and_encoder(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    folder, manifest = index_of(DATA, encoder, tmp_path)
    assert index_of(DATA, encoder, tmp_path) == (folder, manifest)
    assert encoder.encoded == 3
    assert index_of(DATA, CountingEncoder("b" * 64), tmp_path)[0] != folder
    (folder / MANIFEST_FILE).write_text("{}")
    assert index_of(DATA, encoder, tmp_path) == (folder, manifest)
    assert encoder.encoded == 6


@pytest.mark.parametrize("left", ['{"manifest": {"format": 1}, "digest": ""}', None])
def test_what_another_release_or_an_interrupted_run_left_is_built_again(tmp_path: Path, left: str | None) -> None:
    folder, manifest = index_of(DATA, CountingEncoder(), tmp_path)
    if left is None:
        shutil.rmtree(folder)
    else:
        (folder / MANIFEST_FILE).write_text(left)
    broken = CountingEncoder()
    broken.arithmetic = broken.arithmetic.model_copy(update={"batch_size": 64})
    broken.encode_blocks = None  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        index_of(DATA, broken, tmp_path)
    assert index_of(DATA, CountingEncoder(), tmp_path) == (folder, manifest)
    assert Manifest.load(folder) == manifest


def test_figures_are_means_over_queries(tmp_path: Path) -> None:
    folder, _ = index_of(DATA, CountingEncoder(), tmp_path)
    with TextStore(folder) as texts:
        report = measure(Scripted({"gout": [1, 2, 0], "vitamin": []}), DATA, texts)
    ideal = 2 + 1 / np.log2(3)
    found = 2 / np.log2(3) + 1 / 2
    assert report.ndcg_at_10.value == pytest.approx(found / ideal / 2)
    assert report.recall_at_3.value == 0.5
    assert report.mrr_at_10.value == 0.25
    assert report.nothing_found == 1
    assert report.queries_per_second > 0


def test_bm25_on_the_judged_answers_of_liveqa(repository: Path, tmp_path: Path) -> None:
    place = repository.parent / "shared" / "data" / "retrieval" / "medquad_liveqa"
    if not place.is_dir():
        pytest.skip(f"{place} is absent")
    data = read_beir(place)
    folder, manifest = index_of(data, CountingEncoder(), tmp_path)
    ensure_words(folder, manifest)
    ensure_words(folder, manifest)
    with TextStore(folder) as texts:
        report = measure(Bm25Ranker.open(folder, manifest), data, texts)
    assert report.ndcg_at_10.value == pytest.approx(0.693, abs=0.005)
    assert report.recall_at_3.value == pytest.approx(0.520, abs=0.005)
    assert report.nothing_found == 0


def test_a_report_can_be_printed_as_json(tmp_path: Path) -> None:
    import dataclasses

    folder, _ = index_of(DATA, CountingEncoder(), tmp_path)
    with TextStore(folder) as texts:
        report = measure(Scripted({"gout": [2], "vitamin": [1]}), DATA, texts)
    assert json.loads(json.dumps(dataclasses.asdict(report)))["ndcg_at_10"]["value"] == report.ndcg_at_10.value
