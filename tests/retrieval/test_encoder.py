import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.precision import native_bfloat16
from retrieval.encoder import TransformerEncoder
from retrieval.encoder_spec import MEDCPT, MINILM_L6, PRESETS, EncoderSpec, weights_digest
from retrieval.passage import EncoderError, IndexMismatchError, Passage

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = ["fever", "cough", "warfarin", "inhibits", "vitamin", "k", "aspirin", "gout", "dose", "mg"]
TINY = MEDCPT.model_copy(update={"dim": 32})
QUERIES = ["warfarin vitamin k", "fever", "gout dose aspirin mg fever cough", "cough " * 100]
PASSAGES = [
    Passage(id="1", title="warfarin", text="warfarin inhibits vitamin k"),
    Passage(id="2", title="", text="fever cough"),
    Passage(id="3", title="gout dose", text="aspirin " * 600),
    Passage(id="4", title="aspirin", text="dose mg"),
    Passage(id="5", title="cough " * 20, text="fever " * 40),
]


def make_bert(folder: Path, seed: int) -> Path:
    """A BERT of two layers with random weights, and a tokenizer of a few words."""
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=TINY.dim,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.5,  # far apart, so that a wrong input shows in the output
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def query_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "query", seed=1)


@pytest.fixture(scope="module")
def passage_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "passage", seed=2)


@pytest.fixture(scope="module")
def medcpt(query_dir: Path, passage_dir: Path) -> TransformerEncoder:
    return TransformerEncoder(TINY, query_dir, passage_dir, device="cpu", batch_size=2, precision="float32")


def direct(folder: Path, *segments: str, max_length: int) -> Any:
    """The hidden states of one text, with transformers alone: [tokens, dim]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**tokenizer(*segments, truncation=True, max_length=max_length, return_tensors="pt"))[0][0].numpy()


def test_presets_are_the_published_recipes() -> None:
    assert set(PRESETS) == {"medcpt", "minilm-l6"}
    assert (MEDCPT.pooling, MEDCPT.normalize, MEDCPT.metric, MEDCPT.passage_format) == ("cls", False, "ip", "pair")
    assert (MEDCPT.query_max_tokens, MEDCPT.passage_max_tokens, MEDCPT.dim) == (64, 512, 768)
    assert MEDCPT.query_model != MEDCPT.passage_model
    assert (MINILM_L6.pooling, MINILM_L6.normalize, MINILM_L6.passage_format) == ("mean", True, "joined")
    assert (MINILM_L6.query_max_tokens, MINILM_L6.passage_max_tokens, MINILM_L6.dim) == (256, 256, 384)
    assert MINILM_L6.query_model == MINILM_L6.passage_model


def test_medcpt_queries_are_the_cls_vector_of_the_query_model(medcpt: TransformerEncoder, query_dir: Path) -> None:
    vectors = medcpt.encode_queries(QUERIES)
    assert (vectors.dtype, vectors.shape) == (np.float32, (4, 32))
    for query, vector in zip(QUERIES, vectors, strict=True):
        np.testing.assert_allclose(vector, direct(query_dir, query, max_length=64)[0], atol=1e-5)
    assert (np.abs(np.linalg.norm(vectors, axis=1) - 1) > 0.1).all()  # never normalised


def test_medcpt_queries_are_cut_at_64_tokens(medcpt: TransformerEncoder) -> None:
    kept = "cough " * 62  # and [CLS], [SEP]
    same, longer = medcpt.encode_queries([kept, kept + "warfarin " * 50])
    np.testing.assert_allclose(same, longer, atol=1e-6)


def test_queries_of_all_lengths_are_computed_each_for_itself(query_dir: Path) -> None:
    """More than are computed at once, with lengths that recur and lengths that do not, in a mixed order."""
    encoder = TransformerEncoder(MINILM_L6.model_copy(update={"dim": 32}), query_dir, device="cpu")
    queries = [" ".join((WORDS * 4)[start : start + 1 + 7 * start % 23]) for start in range(70)]
    for query, vector in zip(queries, encoder.encode_queries(queries), strict=True):
        mean = direct(query_dir, query, max_length=256).mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_models_whose_attention_may_know_positions_are_computed_with_padding(query_dir: Path, tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(query_dir)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]  # this model knows no segments
    tokenizer.save_pretrained(tmp_path)
    config = transformers.MPNetConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.5,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(3)
    transformers.MPNetModel(config).save_pretrained(tmp_path)
    encoder = TransformerEncoder(MINILM_L6.model_copy(update={"dim": 32}), tmp_path, device="cpu")
    for query, vector in zip(QUERIES, encoder.encode_queries(QUERIES), strict=True):
        mean = direct(tmp_path, query, max_length=256).mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_medcpt_passages_are_title_and_text_as_a_pair(medcpt: TransformerEncoder, passage_dir: Path) -> None:
    vectors = medcpt.encode_passages(PASSAGES)  # of mixed lengths, in batches of two: the order must come back
    for passage, vector in zip(PASSAGES, vectors, strict=True):
        expected = direct(passage_dir, passage.title, passage.text, max_length=512)[0]
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    joined = direct(passage_dir, f"{PASSAGES[0].title} {PASSAGES[0].text}", max_length=512)[0]
    assert np.abs(vectors[0] - joined).max() > 0.01


def test_mean_pooling_ignores_padding_and_normalises(query_dir: Path) -> None:
    spec = MINILM_L6.model_copy(update={"dim": 32})
    encoder = TransformerEncoder(spec, query_dir, device="cpu", precision="float32")
    vectors = encoder.encode_passages(PASSAGES)  # one batch: all but one are padded
    for passage, vector in zip(PASSAGES, vectors, strict=True):
        text = f"{passage.title}. {passage.text}" if passage.title else passage.text
        mean = direct(query_dir, text, max_length=256).mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_queries(["fever cough"])[0], vectors[1], atol=1e-5)


def test_blocks_are_encoded_as_each_would_be_alone(medcpt: TransformerEncoder) -> None:
    blocks = [PASSAGES[:3], PASSAGES[3:], [], PASSAGES]
    found = list(medcpt.encode_blocks(iter(blocks)))
    for block, vectors in zip(blocks, found, strict=True):
        np.testing.assert_array_equal(vectors, medcpt.encode_passages(block))
    assert list(medcpt.encode_blocks([])) == []


def test_what_a_source_of_blocks_raises_comes_through(medcpt: TransformerEncoder) -> None:
    def broken() -> Iterator[list[Passage]]:
        yield PASSAGES
        raise OSError("disk gone")

    found = medcpt.encode_blocks(broken())
    assert next(found).shape == (5, 32)
    with pytest.raises(OSError, match="disk gone"):
        next(found)


def test_bfloat16_is_for_passages_and_queries_stay_exact(
    medcpt: TransformerEncoder, query_dir: Path, passage_dir: Path
) -> None:
    half = TransformerEncoder(TINY, query_dir, passage_dir, device="cpu", batch_size=2, precision="bfloat16")
    assert half.arithmetic.model_dump() == {"precision": "bfloat16", "batch_size": 2, "device": "cpu"}
    assert half.spec == medcpt.spec
    np.testing.assert_array_equal(half.encode_queries(["fever"]), medcpt.encode_queries(["fever"]))
    exact, rough = medcpt.encode_passages(PASSAGES), half.encode_passages(PASSAGES)
    assert rough.dtype == np.float32
    off = np.linalg.norm(rough - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert (off > 0).all()
    assert (off < 0.05).all()


def test_automatic_precision_is_what_the_hardware_multiplies(query_dir: Path) -> None:
    encoder = TransformerEncoder(MINILM_L6.model_copy(update={"dim": 32}), query_dir, device="cpu")
    assert encoder.arithmetic.precision == ("bfloat16" if native_bfloat16("cpu") else "float32")


def test_nothing_in_nothing_out(medcpt: TransformerEncoder) -> None:
    assert medcpt.encode_queries([]).shape == medcpt.encode_passages([]).shape == (0, 32)


def test_the_recipe_is_pinned_to_the_weights(medcpt: TransformerEncoder, query_dir: Path, passage_dir: Path) -> None:
    assert medcpt.spec.query_model.digest == weights_digest(query_dir)
    assert medcpt.spec.passage_model.digest == weights_digest(passage_dir)
    assert medcpt.spec.query_model.digest != medcpt.spec.passage_model.digest
    TransformerEncoder(medcpt.spec, query_dir, passage_dir)
    with pytest.raises(IndexMismatchError, match=r"query_model\.digest: the recipe is pinned to"):
        TransformerEncoder(medcpt.spec, passage_dir, query_dir)


def test_queries_alone_need_only_the_query_model(medcpt: TransformerEncoder, query_dir: Path) -> None:
    encoder = TransformerEncoder(medcpt.spec, query_dir, device="cpu")
    assert encoder.spec == medcpt.spec
    np.testing.assert_array_equal(encoder.encode_queries(["fever"]), medcpt.encode_queries(["fever"]))
    with pytest.raises(EncoderError, match="made for queries only"):
        encoder.encode_passages(PASSAGES)
    with pytest.raises(EncoderError, match="made for queries only"):
        next(encoder.encode_blocks([PASSAGES]))
    with pytest.raises(EncoderError, match="give the folder of ncbi/MedCPT-Article-Encoder"):
        TransformerEncoder(TINY, query_dir)


def test_one_model_for_both_sides_is_loaded_once(query_dir: Path) -> None:
    encoder = TransformerEncoder(MINILM_L6.model_copy(update={"dim": 32}), query_dir)
    assert encoder.spec.query_model == encoder.spec.passage_model
    again = TransformerEncoder(encoder.spec, query_dir, query_dir)
    assert again.spec == encoder.spec


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_the_digest_covers_what_decides_the_vectors(query_dir: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(query_dir, tmp_path / "copy"))
    assert weights_digest(copy) == weights_digest(query_dir)
    (copy / "README.md").write_text("hello")
    assert weights_digest(copy) == weights_digest(query_dir)
    (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    assert weights_digest(copy) != weights_digest(query_dir)


def test_folders_that_are_no_model(tmp_path: Path, query_dir: Path) -> None:
    with pytest.raises(EncoderError, match="not a model folder"):
        TransformerEncoder(MINILM_L6, tmp_path)
    copy = Path(shutil.copytree(query_dir, tmp_path / "copy"))
    (copy / "config.json").write_text("{")
    encoder = TransformerEncoder(MINILM_L6, copy)
    with pytest.raises(EncoderError, match="cannot be loaded on"):
        encoder.encode_queries(["fever"])


@pytest.mark.parametrize(
    ("change", "complaint"), [({"dim": 384}, "vectors of 32"), ({"query_max_tokens": 600}, "512 tok")]
)
def test_a_model_that_does_not_fit_the_recipe(query_dir: Path, change: dict[str, int], complaint: str) -> None:
    spec: EncoderSpec = MINILM_L6.model_copy(update={"dim": 32} | change)
    with pytest.raises(EncoderError, match=complaint):
        TransformerEncoder(spec, query_dir).encode_queries(["fever"])


def test_weights_that_are_incomplete_are_never_filled_with_random_ones(query_dir: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = Path(shutil.copytree(query_dir, tmp_path / "copy")) / "model.safetensors"
    whole = safetensors.load_file(path)

    def keep(*unwanted: str) -> TransformerEncoder:
        kept = {name: tensor for name, tensor in whole.items() if not any(part in name for part in unwanted)}
        safetensors.save_file(kept, path, metadata={"format": "pt"})
        return TransformerEncoder(MINILM_L6.model_copy(update={"dim": 32}), path.parent)

    assert keep("pooler").encode_queries(["fever"]).shape == (1, 32)
    with pytest.raises(EncoderError, match=r"the weights lack \d+ tensors of the model, such as encoder\.layer\.1"):
        keep("pooler", "layer.1.").encode_queries(["fever"])


def test_vectors_that_are_not_finite_are_an_error(query_dir: Path, tmp_path: Path) -> None:
    model = transformers.AutoModel.from_pretrained(query_dir)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[5] = float("nan")  # "fever"
    copy = Path(shutil.copytree(query_dir, tmp_path / "copy"))
    model.save_pretrained(copy)
    encoder = TransformerEncoder(TINY.model_copy(update={"passage_model": TINY.query_model}), copy)
    assert np.isfinite(encoder.encode_queries(["cough"])).all()
    with pytest.raises(EncoderError, match="NaN or infinity for 'fever'"):
        encoder.encode_queries(["cough", "fever"])


def test_threads_that_wait_do_not_spin() -> None:
    import os

    assert os.environ["OMP_WAIT_POLICY"]


def test_the_real_minilm_puts_meanings_together(minilm: TransformerEncoder) -> None:
    vectors = minilm.encode_queries(["heart attack", "myocardial infarction", "nail fungus"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > similarity[0, 2] + 0.3
