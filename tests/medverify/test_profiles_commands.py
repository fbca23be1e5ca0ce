"""`medverify index add-bm25`, `medverify index eval`, and searches with a profile: with a real encoder where they need one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

TEXTS = {
    "d1": ("Gout", "Uric acid crystals inflame a joint."),
    "d2": ("Rickets", "Without vitamin D the bones of children soften."),
    "d3": ("Warfarin", "Vitamin K reverses warfarin."),
}


@pytest.fixture(scope="session")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks") / "three"
    folder.mkdir()
    corpus = [{"_id": name, "title": title, "text": text} for name, (title, text) in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    queries = [{"_id": "q1", "text": "antidote of warfarin"}, {"_id": "q2", "text": "what makes bones soft"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td3\t2\nq2\td2\t1\n")
    return folder


@pytest.mark.usefixtures("real_models")
def test_profiles_are_measured_and_told(cli: Cli, benchmark: Path) -> None:
    asked = ["index", "eval", benchmark, "--profile", "dense", "--profile", "bm25", "--profile", "hybrid"]
    result = cli(*asked, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["benchmark"], report["documents"], report["queries"]) == ("three", 3, 2)
    figures = {row["profile"]: row["ndcg_at_10"]["value"] for row in report["profiles"]}
    assert figures == {"dense": 1.0, "bm25": 1.0, "hybrid": 1.0}
    table = cli(*asked).stdout
    for word in ("dense", "bm25", "hybrid", "nDCG@10", "recall@3", "1.000 [1.000, 1.000]", "2 queries, 3 documents"):
        assert word in table


@pytest.mark.usefixtures("real_models")
def test_a_compressed_copy_is_made_to_be_measured(cli: Cli, benchmark: Path) -> None:
    result = cli("index", "eval", benchmark, "--json", "--set", "retrieval.vectors=sq8")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["vectors"] == "sq8"
    assert [row["ndcg_at_10"]["value"] for row in report["profiles"]] == [1.0]


def test_a_profile_that_does_not_exist_is_named(cli: Cli, benchmark: Path) -> None:
    result = cli("index", "eval", benchmark, "--profile", "sparse")
    assert result.exit_code == 2
    assert "'sparse'" in result.stderr
    assert "hybrid" in result.stderr


def test_a_folder_that_is_no_benchmark_is_named(cli: Cli, tmp_path: Path) -> None:
    result = cli("index", "eval", tmp_path)
    assert result.exit_code == 2
    assert "has no corpus.jsonl" in result.stderr


@pytest.mark.usefixtures("real_models")
def test_reranking_without_a_pinned_model_is_refused(cli: Cli, benchmark: Path) -> None:
    result = cli("index", "eval", benchmark, "--profile", "rerank")
    assert result.exit_code == 2
    assert "no commit is pinned for ncbi/MedCPT-Cross-Encoder" in result.stderr


@pytest.mark.usefixtures("real_models")
def test_an_index_with_words_is_searched_by_them(cli: Cli, benchmark: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert cli("index", "build", benchmark / "corpus.jsonl", "-o", index, "--min-characters", "0").exit_code == 0
    by_words = ["search", "vitamin", "--json", "--set", f"retrieval.index={index}", "--set", "retrieval.profile=bm25"]
    without = cli(*by_words)
    assert without.exit_code == 2
    assert "index add-bm25" in without.stderr
    added = cli("index", "add-bm25", index)
    assert added.exit_code == 0
    assert "words of 3 passages" in added.stdout
    hits = [json.loads(line)["passage"]["id"] for line in cli(*by_words).stdout.splitlines()]
    assert sorted(hits) == ["d2", "d3"]


def test_words_need_an_index(cli: Cli, tmp_path: Path) -> None:
    result = cli("index", "add-bm25", tmp_path)
    assert result.exit_code == 2
    assert "an index?" in result.stderr
