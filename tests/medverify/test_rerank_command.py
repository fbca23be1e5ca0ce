"""`medverify rerank` against a service with a scripted judge, over HTTP."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).with_name("rerank_server.py")), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            line = next(line for line in server.stderr if "Uvicorn running on" in line)
            yield line.split("running on ")[1].split()[0]
        finally:
            server.kill()
            server.communicate()


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    rows = [
        {"prompt": "What blocks VKOR?", "response": "p = 0.2 digoxin", "n": 1},
        {"prompt": "What blocks the pump?", "response": "p = 0.6 digoxin", "n": 2},
        {"prompt": "What blocks VKOR?", "response": "p = 0.9 warfarin", "n": 3},
    ]
    path = tmp_path / "samples [1].jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


NAMED = ("--question-column", "prompt", "--trace-column", "response")


def test_best_first_with_every_column(cli: Cli, service: str, samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = cli("rerank", samples, "-o", out, *NAMED, "--url", service)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["n"], row["medverify"]["p_correct"]) for row in rows] == [
        (3, pytest.approx(0.9)), (1, pytest.approx(0.2)), (2, pytest.approx(0.6)),
    ]  # fmt: skip
    told = result.stderr.split()
    assert "samples" in told
    assert "0.567" in told  # mean p(1) of all
    assert "0.750" in told  # of the best
    second = cli("rerank", samples, "-o", out, *NAMED, "--url", service)
    assert second.exit_code == 0
    assert "nothing to do" in second.stderr


def test_pairs_from_the_judgments_of_a_run(cli: Cli, service: str, samples: Path, tmp_path: Path) -> None:
    out, pairs = tmp_path / "out.jsonl", tmp_path / "pairs.jsonl"
    assert cli("rerank", samples, "-o", out, *NAMED, "--url", service).exit_code == 0
    result = cli(
        "rerank", samples, "-o", pairs, *NAMED, "--pairs", "best-worst", "--id-column", "n",
        "--from-judgments", f"{out}.judgments.jsonl",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (pair,) = [json.loads(line) for line in pairs.read_text().splitlines()]
    assert (pair["chosen_id"], pair["rejected_id"]) == (3, 1)
    assert "pairs written" in result.stderr


def test_what_cannot_be_judged_is_told_and_ends_with_1(cli: Cli, service: str, samples: Path, tmp_path: Path) -> None:
    samples.write_text(samples.read_text() + '{"prompt": "What blocks VKOR?", "response": "trouble"}\n')
    result = cli("rerank", samples, "-o", tmp_path / "out.jsonl", *NAMED, "--url", service)
    assert result.exit_code == 1
    assert "not judged: engine_failed" in result.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows[2]["medverify"]["p_correct"] is None
    assert len(rows) == 4


def test_bad_rows_are_named_and_end_with_2(cli: Cli, service: str, samples: Path, tmp_path: Path) -> None:
    samples.write_text(samples.read_text() + '{"prompt": "What?", "response": 7}\n{\n')
    result = cli("rerank", samples, "-o", tmp_path / "out.jsonl", *NAMED, "--url", service)
    assert result.exit_code == 2
    assert "line 4: response: expected a text or a list of steps, found int" in result.stderr
    assert "line 5: not JSON" in result.stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    assert len((tmp_path / "out.jsonl.rejected.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--question-column", "promt"],
            "no column 'promt'; did you mean --question-column prompt? The columns are: prompt,",
        ),
        ([*NAMED, "--group-column", "zzz"], "no column 'zzz'; name one with --group-column. The columns are: prompt,"),
        ([*NAMED, "--into", "n"], "has a column 'n' already: name another for the judgment with --into"),
        ([*NAMED, "--pairs", "all", "--keep-best", "1"], "--keep-best is for rows, --pairs for pairs"),
        ([*NAMED, "-o", "out.csv"], "out.csv: name the output *.jsonl, *.jsonl.gz, *.parquet"),
        ([*NAMED, "--from-judgments", "absent"], "absent"),
        ([*NAMED, "--url", "http://127.0.0.1:1x"], "does not tell its judge_id"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_judged(
    cli: Cli, samples: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "out.jsonl"
    result = cli("rerank", samples, *(() if "-o" in arguments else ("-o", out)), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not out.exists()


def test_a_file_of_somebody_is_refused_before_a_judge_is_loaded(cli: Cli, samples: Path, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("a diary")
    result = cli("rerank", samples, "-o", tmp_path / "out.jsonl", *NAMED)
    assert result.exit_code == 2
    assert "was not written by `medverify rerank`" in result.stderr
    assert (tmp_path / "out.jsonl").read_text() == "a diary"


@pytest.mark.parametrize(
    ("numbers", "where"),
    [
        ([signal.SIGINT], {}),
        ([signal.SIGTERM], {}),
        ([signal.SIGINT, signal.SIGTERM], {"IN_BACKGROUND": "1"}),  # where Ctrl-C is for somebody else
    ],
    ids=["Ctrl-C", "SIGTERM", "in the background"],
)
def test_a_signal_ends_it_cleanly_and_the_same_command_goes_on(
    start: Callable[..., "subprocess.Popen[bytes]"],
    samples: Path,
    tmp_path: Path,
    numbers: list[signal.Signals],
    where: dict[str, str],
) -> None:
    samples.write_text(samples.read_text() * 20)
    out = tmp_path / "out.jsonl"
    judgments = tmp_path / "out.jsonl.judgments.jsonl"
    with serving("0.1") as url:
        command = ["rerank", samples, "-o", out, *NAMED, "--url", url, "--concurrency", "4"]
        with start(*command, **where) as process:
            seen = 0
            for number in numbers:
                while process.poll() is None and not (
                    judgments.exists() and judgments.read_bytes().count(b"\n") > seen
                ):
                    time.sleep(0.01)
                process.send_signal(number)
                seen += 8
            _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"the same command goes on from there" in err
        assert b"Traceback" not in err
        before = judgments.read_bytes()
        assert before.count(b"\n") < 60
        with start(*command) as process:
            _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert judgments.read_bytes().startswith(before)
    assert len(out.read_text().splitlines()) == 60
