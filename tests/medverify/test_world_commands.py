import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]


def test_a_world_is_written_and_counted(cli: Cli, tmp_path: Path) -> None:
    shown = cli("world", tmp_path / "w", "--drugs", "20", "--questions", "24", "--traces", "2").stdout
    assert "train" in shown
    assert "right traces" in shown
    assert "errors: entity" in shown
    told = json.loads(
        cli("world", tmp_path / "v", "--drugs", "20", "--questions", "24", "--traces", "2", "--json").stdout
    )
    assert told["sides"]["test"]["counts"]["traces"] == 48
    for path in (tmp_path / "w").iterdir():
        assert (tmp_path / "v" / path.name).read_bytes() == path.read_bytes()


def test_what_cannot_be_made_is_said(cli: Cli, tmp_path: Path) -> None:
    refused = cli("world", tmp_path / "w", "--drugs", "20", "--questions", "500")
    assert refused.exit_code == 2
    assert "20 drugs have 240 questions, 500 are wanted" in refused.stderr
    odd = cli("world", tmp_path / "w", "--drugs", "21")
    assert odd.exit_code == 2
    assert "drugs: Input should be a multiple of 2" in odd.stderr
    (tmp_path / "file").write_text("")
    assert cli("world", tmp_path / "file").exit_code == 2
    assert not (tmp_path / "w").exists()


def test_the_help_shows_the_way_to_an_evaluation(cli: Cli) -> None:
    shown = cli("world", "--help").stdout
    for part in ("medverify index build OUT/test.formulary.jsonl", "medverify eval OUT/test", "--held-out-templates"):
        assert part in shown


def test_swapped_facts_of_the_starter_corpus(cli: Cli, tmp_path: Path) -> None:
    told = json.loads(cli("swapped-facts", "starter", "-o", tmp_path / "s", "--most", "8", "--json").stdout)
    assert told["sides"]["test"]["counts"]["right"] == 4
    assert told["recipe"]["sources"] == ["starter"]
    assert "kinds: entity" in cli("swapped-facts", "starter", "-o", tmp_path / "s").stdout
    absent = cli("swapped-facts", tmp_path / "none.jsonl", "-o", tmp_path / "s")
    assert absent.exit_code == 2
    assert "none.jsonl" in absent.stderr
