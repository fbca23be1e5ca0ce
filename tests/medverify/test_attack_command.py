"""`medverify attack`: bad input before any model is loaded, and one real judge both ways."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medverify.cli.attack import demo_bases
from verifier.examples import example_cases

Cli = Callable[..., Any]
Start = Callable[..., Any]

QUICK = (
    "--config", "laptop", "--set", "judge.guided.think_tokens=4", "--set", "judge.guided.query_tokens=4",
    "--set", "judge.guided.max_searches=1", "--set", "judge.top_k=1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--families", "lenght"], "no family named lenght; there are: rewrite, master-key, do-nothing"),
        (["--pack", "absent"], "no such file: absent.questions.jsonl"),
        (["--url", "http://127.0.0.1:9"], "does not tell its judge_id"),
        (["--set", "judge.model=smollm2"], "smollm2 is neither a folder nor a known model"),
    ],
)
def test_bad_input_is_told(cli: Cli, arguments: list[str], message: str) -> None:
    if "judge.model=smollm2" in arguments:
        pytest.importorskip("transformers", reason="the message comes after the libraries are loaded")
    result = cli("attack", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


def test_a_pack_without_labels_has_nothing_to_attack(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.questions.jsonl").write_text(json.dumps({"id": "q", "question": "q"}))
    row = {"qid": "q", "trace_id": "t", "reasoning": "r", "trace_label": None}
    (tmp_path / "p.traces.jsonl").write_text(json.dumps(row))
    result = cli("attack", "--pack", tmp_path / "p")
    assert result.exit_code == 2
    assert "no trace has a label" in result.stderr


def test_every_demo_case_is_labelled() -> None:
    assert [base.labelled.case for base in demo_bases()] == example_cases()
    assert [base.label for base in demo_bases()] == [1, 0, 0]
    for base in demo_bases():
        assert {base.labelled.answer, base.labelled.gold} <= set(base.options)


@pytest.mark.usefixtures("real_models")
def test_a_real_judge_gives_the_same_numbers_in_process_and_at_a_url(cli: Cli, start: Start, tmp_path: Path) -> None:
    """One case at a time on both sides, so that no batch is another."""
    suite = ("attack", "--families", "forged-verdict,poisoned-passage", "--variants", "1", "--together", "1")
    here = cli(*suite, "-o", tmp_path / "here", *QUICK)
    assert here.exit_code == 0, here.stderr
    with start("serve", "--port", "0", *QUICK) as server:
        try:
            url = next(line for line in server.stderr if b"Uvicorn running on" in line).decode()
            there = cli(*suite, "-o", tmp_path / "there", "--url", url.split("running on ")[1].split()[0])
        finally:
            server.kill()
    assert there.exit_code == 0, there.stderr
    reports = [json.loads((tmp_path / way / "report.json").read_text()) for way in ("here", "there")]
    assert reports[0]["clean"] == reports[1]["clean"]
    ours, theirs = ({family["family"]: family for family in report["families"]} for report in reports)
    poisoned = ours.pop("poisoned-passage")
    assert ours == theirs
    assert poisoned["judged"] == reports[0]["poison_shown"] == 3
    assert reports[0]["guarantees"]["foreign_verdicts"] == reports[0]["guarantees"]["live_marks"] == 0
    assert set(reports[1]["not_run"]) == {"poisoned-passage"}
