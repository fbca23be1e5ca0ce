"""`medverify eval` from end to end, with the real small judge and the real starter index."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.report.schema import Report

pytestmark = pytest.mark.usefixtures("real_models")

QUICK = (
    "--set", "judge.guided.think_tokens=4", "--set", "judge.guided.query_tokens=4",
    "--set", "judge.guided.max_searches=1", "--set", "judge.top_k=1", "--set", "judge.transformers.max_sequences=2",
)  # fmt: skip


def test_a_pack_is_judged_and_reported_on(cli: Callable[..., Any], tmp_path: Path) -> None:
    question = {
        "id": "q",
        "question": "What does warfarin inhibit?",
        "options": {"A": "VKOR", "B": "COX"},
        "answer": "A",
    }
    traces = [
        {
            "qid": "q",
            "trace_id": f"q#{answer}",
            "reasoning": f"So {answer}.",
            "pred": answer,
            "trace_label": int(answer == "A"),
        }
        for answer in "AB"
    ]
    (tmp_path / "mine.questions.jsonl").write_text(json.dumps(question))
    (tmp_path / "mine.traces.jsonl").write_text("\n".join(map(json.dumps, traces)))
    result = cli("eval", tmp_path / "mine", "-o", tmp_path / "run", "--without-search", *QUICK)
    assert result.exit_code == 0, result.stderr
    (found,) = Report.model_validate_json((tmp_path / "run" / "report.json").read_bytes()).packs
    searching, silent = found.conduct
    assert searching.statuses == silent.statuses == {"scored": 2}
    assert (searching.searches, silent.searches) == (2, 0)
    assert searching.resolved is not None
    assert (searching.resolved.value, searching.well_formed.value) == (1.0, 1.0)
    assert all(of.seconds is not None and of.seconds > 0 for of in found.cost)
    assert len(found.examples) == 2
