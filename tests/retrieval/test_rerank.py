import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval.passage import EncoderError, Passage, QueryError
from retrieval.ranker import Ranker, Ranking
from retrieval.rerank import Pair, RerankRanker, TransformerCrossEncoder
from retrieval.textstore import TextStore, TextStoreWriter

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = ["fever", "cough", "warfarin", "inhibits", "vitamin", "k", "aspirin", "gout", "dose", "mg"]
PASSAGES = [
    Passage(id="0", title="warfarin", text="warfarin inhibits vitamin k"),
    Passage(id="1", title="", text="fever cough"),
    Passage(id="2", title="gout dose", text="aspirin " * 600),
    Passage(id="3", title="aspirin", text="dose mg"),
    Passage(id="4", title="cough " * 20, text="fever " * 40),
]
QUERIES = ["vitamin k dose", "cough " * 100, "gout"]


def make_cross_encoder(folder: Path, *, labels: int = 1, positions: int = 512, bare: bool = False) -> Path:
    """A BERT of two layers with random weights and, unless `bare`, a head; with a tokenizer of a few words."""
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.5,  # far apart, so that a wrong input shows in the output
        num_labels=labels,
        max_position_embeddings=positions,
    )
    kind = transformers.BertModel if bare else transformers.BertForSequenceClassification
    kind(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cross_encoder(tmp_path_factory.mktemp("models") / "cross")


@pytest.fixture(scope="module")
def cross_encoder(folder: Path) -> TransformerCrossEncoder:
    return TransformerCrossEncoder(folder, device="cpu", batch_size=2)


@pytest.fixture
def texts(tmp_path: Path) -> Any:
    with TextStoreWriter(tmp_path) as writer:
        for passage in PASSAGES:
            writer.append(passage)
    with TextStore(tmp_path) as store:
        yield store


class Base:
    """Finds rows in a fixed order."""

    profile = "dense"

    def __init__(self, rows: Sequence[int], digest: str = "d") -> None:
        self.rows, self.digest = rows, digest

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        rows = np.array(self.rows[:k], dtype=np.int64)
        return [Ranking(rows, np.linspace(1, 0, len(rows), dtype=np.float32)) for _ in queries]


def direct(folder: Path, query: str, article: str) -> float:
    """The score of one pair, as the model's authors compute it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        tokens = tokenizer([[query, article]], truncation=True, padding=True, return_tensors="pt", max_length=512)
        return float(model(**tokens).logits.squeeze(dim=1)[0])


def test_scores_are_those_of_the_published_recipe(cross_encoder: TransformerCrossEncoder, folder: Path) -> None:
    pairs = [(query, passage) for query in QUERIES for passage in PASSAGES]
    scores = cross_encoder.score(pairs)
    expected = [direct(folder, q, f"{p.title}. {p.text}" if p.title else p.text) for q, p in pairs]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    assert len(set(scores.round(3).tolist())) > len(pairs) // 2


def test_rows_are_ordered_anew(cross_encoder: TransformerCrossEncoder, texts: TextStore) -> None:
    ranker: Ranker = RerankRanker(Base([4, 3, 2, 1, 0]), cross_encoder, texts)
    rankings = ranker.rank(QUERIES, 3)
    for query, ranking in zip(QUERIES, rankings, strict=True):
        scores = [cross_encoder.score([(query, passage)])[0] for passage in PASSAGES]
        assert ranking.rows.tolist() == sorted(range(5), key=lambda row: -scores[row])[:3]
        np.testing.assert_allclose(ranking.scores, [scores[row] for row in ranking.rows], rtol=1e-4, atol=1e-5)


class Marks:
    """A cross-encoder that scores by a table of ids, and remembers what it read."""

    digest = "m"

    def __init__(self, marks: dict[str, float]) -> None:
        self.marks, self.read = marks, list[Pair]()

    def score(self, pairs: Sequence[Pair]) -> np.ndarray:
        self.read += pairs
        return np.array([self.marks[passage.id] for _, passage in pairs], dtype=np.float32)


def test_only_the_first_rows_are_read_whatever_k_is(texts: TextStore) -> None:
    marks = Marks({"0": 9, "1": 1, "2": 2, "3": 3, "4": 4})
    ranker = RerankRanker(Base([4, 2, 1, 0]), marks, texts, depth=3)
    (short,), (long,) = ranker.rank(["q"], 1), ranker.rank(["q"], 100)
    assert (short.rows.tolist(), long.rows.tolist()) == ([4], [4, 2, 1])
    assert long.scores.tolist() == [4, 2, 1]
    assert {passage.id for _, passage in marks.read} == {"4", "2", "1"}
    assert {name: histogram.count for name, histogram in ranker.stages.items()} == {"candidates": 2, "rerank": 2}


def test_equal_scores_come_in_the_order_of_rows(texts: TextStore) -> None:
    ranker = RerankRanker(Base([3, 1, 4, 0]), Marks(dict.fromkeys("01234", 0.5)), texts)
    assert ranker.rank(["q"], 3)[0].rows.tolist() == [0, 1, 3]


def test_nothing_found_is_nothing_to_read(texts: TextStore) -> None:
    ranker = RerankRanker(Base([]), Marks({}), texts)
    assert [ranking.rows.tolist() for ranking in ranker.rank(["a", "b"], 3)] == [[], []]
    assert ranker.rank([], 3) == []
    with pytest.raises(QueryError, match="k is 0"):
        ranker.rank(["a"], 0)


def test_the_digest_covers_base_model_and_depth(folder: Path, texts: TextStore, tmp_path: Path) -> None:
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    config = other / "config.json"
    config.write_text(config.read_text().replace('"gelu"', '"relu"'))
    one, two = TransformerCrossEncoder(folder), TransformerCrossEncoder(other)
    assert one.digest == TransformerCrossEncoder(folder).digest
    rankers = [(Base([1]), one), (Base([1]), two), (Base([1], "e"), one), (Base([1]), one, 8)]
    digests = {RerankRanker(base, model, texts, *depth).digest for base, model, *depth in rankers}  # type: ignore[arg-type]
    assert len(digests) == 4


def test_an_encoder_without_a_head_is_refused(tmp_path: Path) -> None:
    model = TransformerCrossEncoder(make_cross_encoder(tmp_path / "bare", bare=True), device="cpu")
    with pytest.raises(EncoderError, match="the weights lack 2 tensors of the model, such as classifier"):
        model.score([("fever", PASSAGES[0])])


@pytest.mark.parametrize(("shape", "named"), [({"labels": 3}, "3 labels"), ({"positions": 128}, "128 tokens")])
def test_another_kind_of_model_is_refused(tmp_path: Path, shape: dict[str, int], named: str) -> None:
    model = TransformerCrossEncoder(make_cross_encoder(tmp_path / "other", **shape), device="cpu")  # type: ignore[arg-type]
    with pytest.raises(EncoderError, match=named):
        model.score([("fever", PASSAGES[0])])


def test_a_score_that_is_no_number_is_an_error(folder: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(broken)
    model.classifier.weight.data[:] = float("nan")
    model.save_pretrained(broken)
    with pytest.raises(EncoderError, match=r"NaN or infinity for 'fever' and passage '0'"):
        TransformerCrossEncoder(broken, device="cpu").score([("fever", PASSAGES[0])])


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="not a model folder"):
        TransformerCrossEncoder(tmp_path)
