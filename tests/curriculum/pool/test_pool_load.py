import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.load import SettingsError, load_settings
from curriculum.pool.load import load_pool
from curriculum.pool.overlap import TrainsOnPackError
from curriculum.pool.settings import PoolSettings
from curriculum.settings import TrainingConfig


def config(folder: Path, **pool: Any) -> Path:
    file = folder / "train.yaml"
    file.write_text(yaml.safe_dump({"run": {"seed": 3}, "pool": pool}))
    return file


def read_pool_settings(file: Path) -> PoolSettings:
    return load_settings(file, {}, kind=TrainingConfig).settings.pool


def source(folder: Path, name: str, labels: str, **more: Any) -> dict[str, Any]:
    file = folder / f"{name}.jsonl"
    rows = [
        {
            "id": n,
            "question": f"Question {n // 2} of {name}?",
            "trace": f"{name} {n}",
            "label": None if mark == "-" else int(mark),
        }
        for n, mark in enumerate(labels)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"kind": "jsonl", "files": [str(file)], "licence": "CC0", "provenance": "here", **more}


def test_a_config_becomes_a_pool_and_a_report(tmp_path: Path) -> None:
    sources = {"a": source(tmp_path, "a", "10101-"), "b": source(tmp_path, "b", "1100", licence="MIT")}
    loaded = load_pool(read_pool_settings(config(tmp_path, sources=sources, weights={"a": 1, "b": 3}, seed=5)))
    drawn = loaded.pool.draw(4)
    assert sum(one.label for one in drawn) == 2
    a, b = loaded.report.sources["a"], loaded.report.sources["b"]
    assert (a.read, a.unlabelled, a.counts.right, a.counts.wrong, a.counts.drawable) == (5, 1, 3, 2, 4)
    assert (b.licence, b.read, b.counts.questions, b.counts.drawable) == ("MIT", 4, 2, 4)
    assert loaded.report.drawable == 8
    assert loaded.report.digest == loaded.pool.state()["digest"]
    assert (a.share, b.share) == (0.25, 0.75)
    even = load_pool(read_pool_settings(config(tmp_path, sources=sources)))
    assert [one.share for one in even.report.sources.values()] == [0.5, 0.5]


def test_a_source_of_which_nothing_can_be_drawn_is_shown(tmp_path: Path) -> None:
    sources = {"a": source(tmp_path, "a", "10"), "b": source(tmp_path, "b", "11"), "c": source(tmp_path, "c", "--")}
    weights = dict.fromkeys(sources, 1.0)
    report = load_pool(read_pool_settings(config(tmp_path, sources=sources, weights=weights))).report
    told = {
        name: (one.unlabelled, one.counts.right, one.counts.drawable, one.share) for name, one in report.sources.items()
    }
    assert told == {"a": (0, 1, 2, 1), "b": (0, 2, 0, 0), "c": (2, 0, 0, 0)}


def test_what_is_in_a_pack_is_left_out_and_told(tmp_path: Path) -> None:
    exam = [
        {"id": f"x{n}", "question": "Question 0 of a?" if n == 0 else f"Unlike anything, number {n}?"} for n in range(5)
    ]
    (tmp_path / "exam.questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in exam))
    sources = {"a": source(tmp_path, "a", "1010")}
    overlap = {"packs": [str(tmp_path / "exam")]}
    loaded = load_pool(read_pool_settings(config(tmp_path, sources=sources, overlap=overlap)))
    assert loaded.report.sources["a"].overlapping == 2
    assert loaded.report.packs[0].removed == 2
    assert {one.case.question.text for one in loaded.pool.draw(4)} == {"Question 1 of a?"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sources": {}}, r"file train\.yaml:\d+: pool\.sources = {}: dictionary should have at least 1 item"),
        ({"weights": {"a": 1, "c": 1}}, r"weights: give one for every source and for nothing else; not so for b, c"),
        ({"weights": {"a": 0, "b": 1}}, r"pool\.weights\.a: input should be greater than 0"),
        ({"seed": -1}, r"file train\.yaml:\d+: pool\.seed = -1"),
        ({"seed": True}, r"pool\.seed = True: input should be a valid integer"),
        ({"per_question": 0}, r"pool\.per_question = 0: "),
        ({"overlap": {"threshold": 0.4}}, r"pool\.overlap\.threshold = 0\.4: "),
        ({"overlap": {"packs": "x"}}, r"pool\.overlap\.packs = 'x': "),
        ({"sauces": {}}, r"unknown setting pool\.sauces; did you mean pool\.sources"),
        ({"sources": {"a": {"kind": "pack", "prefix": "x"}}}, r"pool\.sources\.a\.pack\.licence: field required"),
        ({"sources": {"a": {"kind": "csv"}}}, r"pool\.sources\.a: input tag 'csv'"),
        ({"sources": {"a/b": {"kind": "medprm"}}}, r"pool\.sources\.a/b"),
    ],
)
def test_faults_are_told_by_place_and_key(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    good = {"sources": {"a": source(tmp_path, "a", "10"), "b": source(tmp_path, "b", "10")}}
    with pytest.raises(SettingsError, match=told):
        read_pool_settings(config(tmp_path, **{**good, **change}))


def test_a_config_without_a_pool_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("run: {seed: 1}")
    with pytest.raises(SettingsError, match="pool: field required"):
        read_pool_settings(tmp_path / "train.yaml")


@pytest.fixture(scope="session")
def shared(repository: Path) -> Path:
    folder = repository.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not on this machine")
    return folder


def test_the_real_pool_is_apart_from_the_real_packs(shared: Path, tmp_path: Path) -> None:
    sources = {
        name: {
            "kind": "pack",
            "prefix": str(shared / "pool" / f"mmlupro_{name}"),
            "licence": "MIT",
            "provenance": "hub",
        }
        for name in ("biology", "health")
    }
    names = ("usmle_dev100_n29", "medmcqa_dev1000_n9", "pubmedqa_other500_ctx", "medmcqa_dev")
    overlap = {"packs": [str(shared / "packs" / name) for name in names]}
    report = load_pool(read_pool_settings(config(tmp_path, sources=sources, overlap=overlap))).report
    assert {name: one.read + one.unlabelled for name, one in report.sources.items()} == {
        "biology": 7887,
        "health": 8997,
    }


def test_a_real_pack_is_no_source(shared: Path, tmp_path: Path) -> None:
    prefix = str(shared / "packs" / "usmle_dev100_n29")
    sources = {"exam": {"kind": "pack", "prefix": prefix, "licence": "Apache-2.0", "provenance": "hub"}}
    with pytest.raises(TrainsOnPackError, match=r"2,871 of the 2,871 traces|99 of the 99 questions"):
        load_pool(read_pool_settings(config(tmp_path, sources=sources, overlap={"packs": [prefix]})))


def test_the_configs_in_the_docs_are_configs(repository: Path, tmp_path: Path) -> None:
    whole, part = re.findall(r"```yaml\n(.*?)```", (repository / "docs" / "training-data.md").read_text(), re.DOTALL)
    for number, text in enumerate((whole, f"pool:\n  sources:\n{part}")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        assert read_pool_settings(file).sources
