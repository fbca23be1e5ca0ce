"""`medverify train` from a config file to a judge that verifies."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_lessons import demonstrations, examples, tiny_model


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A world of one word, a model that a test can train, and the starter index."""
    drawn = examples(24)
    rows = {
        "questions": [{"id": one.question_id, "question": "q"} for one in drawn if one.label],
        "traces": [
            {
                "qid": one.question_id,
                "trace_id": one.case.id,
                "reasoning": one.case.trace.render(),
                "trace_label": one.label,
            }
            for one in drawn
        ],
        "demonstrations": [json.loads(one.model_dump_json()) for one in demonstrations(8)],
    }
    for part, lines in rows.items():
        (tmp_path / f"tiny.{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "prompt.txt").write_text("{question} {trace}")
    settings = {
        "judge": {
            "model": str(tiny_model(tmp_path / "model")), "mode": "free", "prompt": str(tmp_path / "prompt.txt"),
            "limits": {"max_new_tokens": 40}, "sampling": {"temperature": 1.0},
            "transformers": {"max_sequences": 8, "max_context": 256, "dtype": "float32", "device": "cpu"},
        },
        "pool": {"sources": {"tiny": {
            "kind": "pack", "prefix": str(tmp_path / "tiny"), "licence": "CC0-1.0", "provenance": "this test"}}},
        "policy": {"lora": {"rank": 2}, "device": "cpu", "precision": "float32"},
        "warm_up": {"demonstrations": [str(tmp_path / "tiny.demonstrations.jsonl")], "steps": 2, "batch": 2},
        "iterations": [{"budget": 4, "epochs": 1, "batch": 2, "group": 2, "gates": {"enabled": False}}],
        "run": {"checkpoint_every": 1},
    }  # fmt: skip
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


@pytest.mark.usefixtures("real_models")
def test_from_a_config_to_a_judge(config: Path, tmp_path: Path, cli: Callable[..., Any]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = tmp_path / "run"
        done = cli("train", str(config), "-o", str(run))
        assert done.exit_code == 0, done.output
        assert "warm-up 2/2: loss" in done.output
        assert "iteration-1 2/2: reward" in done.output
        assert (run / "curves.svg").is_file()
        kept = (run / "metrics.jsonl").read_bytes()
        again = cli("train", str(config), "-o", str(run))
        assert again.exit_code == 0, again.output
        assert (run / "metrics.jsonl").read_bytes() == kept

        other = cli("train", str(config), "-o", str(run), "--set", "warm_up.steps=3")
        assert other.exit_code == 2
        assert "begun with other settings (warm_up)" in " ".join(other.output.split())

        case = tmp_path / "case.jsonl"
        case.write_text('{"id": "1", "question": "q", "trace": "1 yyyy"}\n')
        judged = cli(
            "verify", str(case), "--model", str(tmp_path / "model"), "--set", f"judge.adapter={run / 'judge'}", "--set",
            "judge.mode=free", "--set", "judge.transformers.max_context=2048", "--set", "judge.limits.max_new_tokens=40",
            "-o", str(tmp_path / "judged.jsonl"),
        )  # fmt: skip
        assert judged.exit_code in (0, 1), judged.output
        assert json.loads((tmp_path / "judged.jsonl").read_text())["id"] == "1"
    finally:
        torch.set_num_threads(before)


def test_what_is_missing_is_named(config: Path, tmp_path: Path, cli: Callable[..., Any]) -> None:
    for name, overrides, words in (
        ("nowhere", [], "no training config nowhere; shipped: closed-world, med-tiv"),
        (str(config), ["judge.model=qwen2.5-7b-instruct"], "qwen2.5-7b-instruct"),
        (str(config), ["warm_up.demonstrations=[nowhere.jsonl]"], "nowhere.jsonl: No such file"),
    ):
        flags = [flag for override in overrides for flag in ("--set", override)]
        done = cli("train", name, "-o", str(tmp_path / "run"), *flags)
        assert done.exit_code == 2, done.output
        assert words in " ".join(done.output.split())
        assert "Traceback" not in done.output
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
