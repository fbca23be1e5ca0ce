"""`medverify attack`: bad input before any model is loaded, and one real judge both ways."""

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
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
    """One case at a time on both sides, so that no batch is another. The service is started once its index is there."""
    suite = ("attack", "--families", "forged-verdict,do-nothing,poisoned-passage", "--variants", "1", "--together", "1")
    here = cli(*suite, "-o", tmp_path / "here", *QUICK)
    assert here.exit_code == 0, here.stderr
    url, place = (f"127.0.0.1:{port}" for port in free_ports(2))
    poison = ("--url", f"http://{url}", "--poison-at", place, "-o", tmp_path / "there")
    with start(*suite, *poison, "--config", "laptop") as there:
        try:
            assert any(b"are poisoned" in line for line in there.stderr)
            index = ("--set", f"retrieval.index=http://{place}", "--set", "serve.cache.max_rows=0")
            with start("serve", "--port", url.rpartition(":")[2], *index, *QUICK) as server:
                try:
                    _, told = there.communicate(timeout=300)
                finally:
                    server.kill()
        finally:
            there.kill()
    assert there.returncode == 0, told.decode()
    reports = [json.loads((tmp_path / way / "report.json").read_text()) for way in ("here", "there")]
    held = [report.pop("guarantees") for report in reports]
    assert reports[0] == reports[1]
    assert reports[0]["poison_shown"] == 3
    assert held[0]["foreign_verdicts"] == held[0]["live_marks"] == held[1]["live_marks"] == 0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]
