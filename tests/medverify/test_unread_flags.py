"""A flag that the chosen mode does not read is refused before anything is done, whatever its value."""

from collections.abc import Callable
from typing import Any

import pytest

Cli = Callable[..., Any]

RERANK = ("rerank", "absent.jsonl", "-o", "out.jsonl")
URL = ("--url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("command", "flags", "why"),
    [
        (RERANK, ("--min-margin", "0"), "it is for --pairs"),  # also where it is the default
        (RERANK, ("--id-column", "n"), "it is for --pairs"),
        ((*RERANK, "--pairs", "all"), ("--detail", "full"), "pairs of --pairs have their probabilities"),
        (RERANK, ("--concurrency", "4"), "it is for --url"),
        (RERANK, ("--deadline", "4"), "it is for --url"),
        ((*RERANK, *URL), ("--model", "x"), "the judge is the service's"),
        ((*RERANK, *URL), ("--config", "laptop"), "the judge is the service's"),
        ((*RERANK, *URL), ("--set", "judge.top_k=3"), "--set takes judge.sampling.seed there"),
        ((*RERANK, "--from-judgments", "j.jsonl"), URL, "nothing is judged"),
        ((*RERANK, "--from-judgments", "j.jsonl"), ("--retry-failed",), "nothing is judged"),
        ((*RERANK, "--from-judgments", "j.jsonl"), ("--set", "judge.sampling.seed=1"), "nothing is judged"),
        (("eval", "--rescore", "-o", "run"), ("--traces", "3"), "--rescore reports what the folder of -o holds"),
        (("eval", "--rescore", "-o", "run"), URL, "--rescore reports what the folder of -o holds"),
        (("eval", "--rescore", "-o", "run"), ("--no-judge",), "--rescore reports what the folder of -o holds"),
        (("eval", "--rescore", "-o", "run"), ("--retry-failed",), "--rescore reports what the folder of -o holds"),
        (("eval", "--rescore", "-o", "run"), ("--model", "x"), "--rescore reports what the folder of -o holds"),
        (("eval", "--compare", "a", "b"), ("--rescore",), "--compare reads two runs"),
        (("eval", "--compare", "a", "b"), ("PACK",), "--compare reads two runs"),
        (("eval", "pack", "--no-judge"), ("--seeds", "2"), "with --no-judge nothing is judged"),
        (("eval", "pack", "--no-judge"), ("--without-search",), "with --no-judge nothing is judged"),
        (("eval", "pack", "--no-judge"), ("--sample-seed", "2"), "--questions draws a sample"),
        (("eval", "pack", "-o", "run"), ("--concurrency", "2"), "it is for --url"),
        (("eval", "pack", "-o", "run", *URL), ("--without-search",), "the judge is the service's"),
        (("eval", "pack", "-o", "run", *URL), ("--set", "judge.limits.deadline_s=3"), "judge.sampling.seed there"),
        (("attack",), ("--questions", "3"), "--pack draws questions"),
        (("attack",), ("--retry-failed",), "only a folder of -o keeps what failed"),
        (("attack", *URL), ("--model", "x"), "the judge is the service's"),
        (("attack", *URL), ("--set", "judge.top_k=3"), "judge.sampling.seed and judge.limits.deadline_s there"),
        (("verify", "-"), ("--retry-failed",), "only a file of -o keeps what failed"),
        (("generate", "p", "-o", "q", "--samples", "1", "--temperature", "0"), ("--top-p", "0.9"), "likeliest token"),
        (("benchmark", "fetch", "medqa", "-o", "p", "--from", "f.jsonl"), ("--revision", "x"), "nothing is read from"),
    ],
)
def test_a_flag_without_effect_is_refused(cli: Cli, command: tuple[str, ...], flags: tuple[str, ...], why: str) -> None:
    result = cli(*command, *flags)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {flags[0]}")
    assert "would do nothing" in result.stderr
    assert why in " ".join(result.stderr.split())


def test_without_it_the_command_goes_on(cli: Cli) -> None:
    """The commands of the table do not fail for another reason first, and read what they are left with."""
    assert "absent.jsonl" in cli(*RERANK).stderr
    assert "does not tell its judge_id" in cli("attack", *URL, "--set", "judge.sampling.seed=1").stderr
    assert "no such file" in cli("eval", "pack", "--no-judge", "--questions", "2", "--sample-seed", "1").stderr
