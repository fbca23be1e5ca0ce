import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture
def config(cli: Cli, tmp_path: Path) -> Path:
    assert cli("world", tmp_path / "w", "--drugs", "20", "--questions", "24", "--traces", "2").exit_code == 0
    file = tmp_path / "train.yaml"
    file.write_text(f"""
run:
  seed: 3
pool:
  sources:
    world:
      kind: pack
      prefix: {tmp_path}/w/train
      licence: Apache-2.0
      provenance: medverify world
  overlap:
    packs: [{tmp_path}/w/test]
""")
    return file


def test_a_pool_is_shown_and_nothing_is_written(cli: Cli, config: Path) -> None:
    before = sorted(config.parent.rglob("*"))
    shown = cli("pool", config)
    assert shown.exit_code == 0
    for part in ("labelled traces", "closed-world 48", "Apache-2.0", "medverify world", "48 examples can be drawn"):
        assert part in shown.stdout
    assert sorted(config.parent.rglob("*")) == before


def test_programs_get_json(cli: Cli, config: Path) -> None:
    told = json.loads(cli("pool", config, "--json").stdout)
    world = told["sources"]["world"]
    assert (world["read"], world["counts"]["right"], world["counts"]["drawable"]) == (48, 24, 48)
    assert world["generators"] == {"closed-world": 48}
    assert told["packs"][0]["pack"] == f"{config.parent}/w/test"
    assert told["drawable"] == 48
    assert len(told["digest"]) == 64


def test_a_pool_that_is_a_pack_is_refused(cli: Cli, config: Path) -> None:
    config.write_text(config.read_text().replace("/w/test]", "/w/train]"))
    refused = cli("pool", config)
    assert refused.exit_code == 2
    assert "has 24 of the 24 questions of the evaluation pack" in refused.stderr


def test_a_pool_that_was_compared_with_nothing_says_so(cli: Cli, config: Path) -> None:
    config.write_text(config.read_text().partition("  overlap:")[0])
    assert "not compared with any evaluation pack" in cli("pool", config).stdout


def test_a_flag_beats_the_file_as_in_training(cli: Cli, config: Path) -> None:
    told = json.loads(cli("pool", config, "--set", "pool.per_question=1", "--json").stdout)
    assert told["sources"]["world"]["counts"]["over_cap"] == 24


def test_faults_are_told(cli: Cli, config: Path) -> None:
    config.write_text(config.read_text().replace("      licence: Apache-2.0\n", ""))
    refused = cli("pool", config)
    assert refused.exit_code == 2
    assert "pool.sources.world.pack.licence: field required" in refused.stderr
    absent = cli("pool", config.parent / "none.yaml")
    assert absent.exit_code == 2
    assert "no training config" in absent.stderr
