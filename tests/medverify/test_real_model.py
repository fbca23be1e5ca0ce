"""The commands as a newcomer runs them, with the real small judge and the real starter index.

What is killed, stopped or read through pipes runs in a process of its own; the rest in this one, for most of a short run is
spent on importing libraries. The budgets are cut to a few tokens for the same reason.
"""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from verifier.types import Case, Judgment, Status

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[bytes]"]
Cli = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("real_models")

QUICK = (
    "--config", "laptop", "--set", "judge.guided.think_tokens=4", "--set", "judge.guided.query_tokens=4",
    "--set", "judge.guided.max_searches=1", "--set", "judge.top_k=1",
)  # fmt: skip
WAVES_OF_TWO = (*QUICK, "--set", "judge.transformers.max_sequences=2")
CASES: list[dict[str, Any]] = [
    {"id": "a", "question": "What does warfarin inhibit?", "trace": "Warfarin blocks vitamin K epoxide reductase."},
    {"id": "b", "question": "What comes first in anaphylaxis?", "trace": ["Adrenaline.", "Into the thigh."]},
    {"id": "c", "question": "What is first-line in type 2 diabetes?", "options": {"A": "Insulin"}, "trace": "A."},
    {"id": "d", "question": "What lowers potassium fast?", "trace": "Insulin with glucose."},
    {"id": "e", "question": "What treats torsades de pointes?", "trace": "Magnesium, given into a vein."},
]
LINES = [json.dumps(case).encode() + b"\n" for case in CASES]


@pytest.fixture(scope="module")
def unbroken(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple["subprocess.CompletedProcess[str]", bytes]:
    """A run over all cases with two bad lines between them, and the file that it wrote."""
    path = tmp_path_factory.mktemp("unbroken") / "judgments.jsonl"
    bad = [b'{"id": "x", "qestion": "q", "trace": "t"}\n', b"junk\n"]
    stdin = b"".join([*LINES[:1], bad[0], *LINES[1:3], bad[1], *LINES[3:]])
    done = run("verify", "-", "--json", "-o", path, *WAVES_OF_TWO, stdin=stdin)
    return done, path.read_bytes() if path.exists() else b""


def test_search_finds_what_was_asked_for(run: Run) -> None:
    done = run("search", "warfarin mechanism of action")
    assert done.returncode == 0, done.stderr
    first, *others = [line for line in done.stdout.splitlines() if line[:2] in ("1.", "2.", "3.")]
    assert "pharmacology-warfarin" in first
    assert first.startswith("1. Warfarin  0.")
    assert len(others) == 2
    assert "vitamin K epoxide reductase" in done.stdout


def test_bad_lines_are_named_and_the_others_judged(unbroken: tuple[Any, bytes]) -> None:
    done, _ = unbroken
    assert done.returncode == 2
    judgments = [Judgment.model_validate_json(line) for line in done.stdout.splitlines()]
    assert [judgment.id for judgment in judgments] == ["a", "b", "c", "d", "e"]
    for judgment, case in zip(judgments, CASES, strict=True):
        assert judgment.status is Status.SCORED, judgment.detail
        assert judgment.case_digest == Case.model_validate(case).digest
        assert judgment.searches[0].passages[0].title
        assert judgment.latency_ms is None
    first, second = (line for line in done.stderr.splitlines() if line.startswith("-, line "))
    assert first.startswith("-, line 2: question: Field required; qestion: Extra inputs are not permitted")
    assert second.startswith("-, line 5: not JSON")
    assert "2 bad line(s) were left out" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_file_holds_what_was_printed(unbroken: tuple[Any, bytes]) -> None:
    done, content = unbroken
    assert content.decode() == done.stdout


def test_a_run_that_was_killed_ends_with_the_same_file(
    start: Start, run: Run, unbroken: tuple[Any, bytes], tmp_path: Path
) -> None:
    file, output = tmp_path / "cases.jsonl", tmp_path / "judgments.jsonl"
    file.write_bytes(b"".join(LINES))
    command = ("verify", file, "-o", output, *WAVES_OF_TWO)
    with start(*command) as process:
        try:
            while process.poll() is None and not (output.exists() and output.stat().st_size):
                time.sleep(0.01)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL, process.stderr and process.stderr.read()
    done = output.read_bytes().count(b"\n")
    assert 2 <= done < len(CASES)
    with output.open("ab") as torn:
        torn.write(b'{"id": "c", "status": "sco')

    continued = run(*command)
    assert continued.returncode == 0, continued.stderr
    assert output.read_bytes() == unbroken[1]
    assert "5 judged or tried" in continued.stderr  # those from before count as well


def test_one_case_is_shown_with_its_evidence(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text(json.dumps(CASES[0], indent=2))
    done = cli("verify", tmp_path / "case.json", *QUICK)
    assert done.exit_code == 0, done.stderr
    for part in (
        "What does warfarin inhibit?",
        "The judge thought",
        "Searched for “",
        "1. Warfarin  score 0.",
        "Verdict: ",
        "p(1) = 0.",
    ):
        assert part in done.stdout


def test_an_outage_is_no_judgment(cli: Cli) -> None:
    """The judge's server is not there: every case says so, and the exit code too."""
    server = ("--set", "judge.openai.base_url=http://127.0.0.1:9/v1", "--set", "judge.openai.max_retries=0")
    model = ("--config", "openai-server", "--model", "smollm2-135m-instruct")
    unnamed = cli("verify", "-", "--json", *model, *server, stdin=LINES[0])
    assert unnamed.exit_code == 2
    assert "does not tell what it serves" in unnamed.stderr
    named = ("--set", "judge.openai.model=judge")
    done = cli("verify", "-", "--json", *model, *server, *named, stdin=b"".join(LINES[:2]))
    assert done.exit_code == 1
    judgments = [json.loads(line) for line in done.stdout.splitlines()]
    assert [judgment["status"] for judgment in judgments] == ["engine_failed"] * 2
    assert all(judgment["verdict"] is judgment["p_correct"] is None for judgment in judgments)
    assert all("http://127.0.0.1:9/v1" in judgment["detail"] for judgment in judgments)


def test_serve(start: Start) -> None:
    with start("serve", "--port", "0", *QUICK) as server:
        try:
            assert server.stderr
            url = next(line for line in server.stderr if b"Uvicorn running on" in line).decode()
            url = url.split("running on ")[1].split()[0]
            assert httpx2.get(f"{url}/ready").json() == {"status": "ready", "cases_in_flight": 0, "replicas": 1}
            info = httpx2.get(f"{url}/info").json()
            assert info["model"] == "smollm2-135m-instruct"
            judgment = Judgment.model_validate(httpx2.post(f"{url}/verify", json=CASES[0], timeout=120).json())
            assert judgment.status is Status.SCORED, judgment.detail
            assert judgment.judge_id == info["judge_id"]
            assert judgment.searches[0].passages[0].title == "Warfarin"
            server.send_signal(signal.SIGTERM)
            log = server.stderr.read().decode()
            assert server.wait(timeout=60) in (0, -signal.SIGTERM)
        finally:
            server.kill()
    assert "Application shutdown complete" in log
    assert "Traceback" not in log


def test_demo_shows_three_judged_cases_and_how_far_to_trust_them(cli: Cli) -> None:
    done = cli("demo", *QUICK)
    assert done.exit_code == 0, done.stderr
    for id in ("right", "wrong-mechanism", "outdated-claim"):
        assert f" {id} " in done.stdout
    assert done.stdout.count("Verdict: ") == done.stdout.count("p(1) = ") == 3
    assert "How good is this judge?" in done.stdout


def test_an_index_of_ones_own(cli: Cli, tmp_path: Path) -> None:
    """PubMed puts translated titles into brackets, which must not be taken for styles."""
    passages = [
        {"id": "p1", "title": "[treatment of scurvy]", "text": "Vitamin C cures scurvy."},
        {"id": "p2", "title": "[/bold] Rickets", "text": "Vitamin D prevents rickets."},
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, passages)))
    built = cli("index", "build", tmp_path / "mine.jsonl", "-o", tmp_path / "[index]", "--min-characters", "0")
    assert built.exit_code == 0
    assert "[index]: 2 passages" in built.stdout
    found = cli("search", "scurvy", "--set", f"retrieval.index={tmp_path}/[index]")
    assert found.exit_code == 0
    assert found.stdout.startswith("1. [treatment of scurvy]")
    assert "2. [/bold] Rickets" in found.stdout
