"""`medverify verl filter` with a policy that is right by chance, and a running retrieval server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rote_policy import cases
from typer.testing import CliRunner
from verl_setting import CONFIGS, Setting

from configs.appended import ResumeError
from curriculum.verl_recipe.files import begin, read_rows
from curriculum.verl_recipe.rows import case_of, label_of

Cli = Callable[..., Any]


@pytest.fixture
def cli() -> Cli:
    from medverify.cli.app import app

    def run(*arguments: str | Path) -> Any:
        result = CliRunner().invoke(app, ["verl", "filter", *map(str, arguments)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def config(setting: Setting, tmp_path: Path) -> Path:
    """The shipped file around the tiny policy and a pool of its cases, labelled in turn."""
    lines = [
        {**case.model_dump(mode="json", exclude_none=True), "label": number % 2, "question_id": case.id}
        for number, case in enumerate(cases(40))
    ]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    written = yaml.safe_load((CONFIGS / "filter.yaml").read_text())
    source = {
        "kind": "jsonl",
        "files": [str(tmp_path / "pool.jsonl")],
        "licence": "CC0-1.0",
        "provenance": "these tests",
    }
    written["pool"] = {"sources": {"made-up": source}}
    questions = [
        {"id": "gout", "question": "How is gout treated?"},
        {"id": "asthma", "question": "What relieves asthma?"},
    ]
    traces = [
        {"qid": row["id"], "trace_id": f"{row['id']}-{label}", "reasoning": f"Verdict {label}.", "trace_label": label}
        for row in questions
        for label in (0, 1)
    ]
    for part, rows in (("questions", questions), ("traces", traces)):
        (tmp_path / f"held-out.{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written["held_out"] = {"pack": str(tmp_path / "held-out"), "examples": 2}
    del written["judge"]["vllm"]
    written["judge"] |= {
        "engine": "transformers",
        "model": str(setting.policy),
        "prompt": str(setting.prompt_file),
        "transformers": {"max_sequences": 16, "max_context": 1024, "dtype": "float32"},
    }
    written["retrieval"] = {"index": setting.url}
    written["iterations"] = [{"budget": 8, "group": 4}, {"budget": 4, "group": 4}]
    file = tmp_path / "filter.yaml"
    file.write_text(yaml.safe_dump(written))
    return file


def test_two_iterations_draw_from_one_pool(cli: Cli, config: Path, tmp_path: Path) -> None:
    told = json.loads(cli(config, "-o", tmp_path / "1", "--json").stdout)
    first = read_rows(tmp_path / "1" / "train.parquet")
    assert told["kept"] == {"0": 4, "1": 4}
    assert told["seen"] == told["passed"] + sum(told["refused"].values())
    assert set(told["refused"]) <= {"easy", "impossible"}
    assert sorted(map(label_of, first)) == [0] * 4 + [1] * 4
    assert {row["data_source"] for row in first} == {"made-up"}
    validated = read_rows(tmp_path / "1" / "validation.parquet")
    assert sorted(map(label_of, validated)) == [0, 1]
    assert {case_of(row).question.text for row in validated} <= {"How is gout treated?", "What relieves asthma?"}
    lines = (tmp_path / "1" / "candidates.jsonl").read_text().splitlines()
    groups = [candidate for line in lines for candidate in json.loads(line)["candidates"]]
    kept = [one["id"] for one in groups if len(set(one["correct"])) == 2]
    assert {case_of(row).id for row in first} <= set(kept)

    again = cli(config, "-o", tmp_path / "1", "--json")  # finished: nothing is sampled, and the same comes out
    assert json.loads(again.stdout) == told
    assert (tmp_path / "1" / "candidates.jsonl").read_text().splitlines() == lines

    assert cli(config, "-o", tmp_path / "2", "--iteration", "2", "--after", tmp_path / "1").exit_code == 0
    second = read_rows(tmp_path / "2" / "train.parquet")
    assert len(second) == 4
    tried = {one["id"] for one in groups}
    assert not tried & {case_of(row).id for row in second}


def test_what_cannot_be_done_is_said(cli: Cli, config: Path, tmp_path: Path) -> None:
    refused = cli(config, "-o", tmp_path / "3", "--iteration", "3")
    assert refused.exit_code == 2
    assert "there is no iteration 3" in refused.stderr
    greedy = cli(config, "-o", tmp_path / "3", "--set", "judge.sampling.temperature=0")
    assert greedy.exit_code == 2
    assert "temperature must be above 0" in greedy.stderr
    assert not (tmp_path / "3").exists()


def test_a_folder_belongs_to_one_selection(tmp_path: Path) -> None:
    state = {"drawn": 4}
    assert begin(tmp_path, {"judge": "a", "seed": 1}, state) == state
    assert begin(tmp_path, {"judge": "a", "seed": 1}, state) == state
    with pytest.raises(ResumeError, match="begun with another judge;"):
        begin(tmp_path, {"judge": "b", "seed": 1}, state)
    with pytest.raises(ResumeError, match="begun with another pool;"):
        begin(tmp_path, {"judge": "a", "seed": 1}, {"drawn": 6})
