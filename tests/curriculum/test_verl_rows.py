from pathlib import Path

import pytest
from verl_fakes import example

from curriculum.gates import Refusal
from curriculum.selecting import Selection
from curriculum.verl_recipe.files import read_rows, write_examples, write_report
from curriculum.verl_recipe.rows import case_of, label_of
from verifier.prompt import load_prompt


def test_the_data_set_gives_back_cases_and_labels(tmp_path: Path) -> None:
    chosen = [example(0, 0), example(1, 1), example(2, 0)]
    assert write_examples(tmp_path / "t.parquet", chosen, load_prompt("judge")) == 3
    rows = read_rows(tmp_path / "t.parquet")
    assert [case_of(row) for row in rows] == [one.case for one in chosen]
    assert [label_of(row) for row in rows] == [0, 1, 0]
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2]
    assert [row["extra_info"]["question_id"] for row in rows] == ["q0", "q1", "q2"]
    assert {row["agent_name"] for row in rows} == {"medverify_judge"}
    assert "Question 1?" in rows[1]["prompt"][0]["content"]


def test_rows_that_are_not_ours_are_refused() -> None:
    with pytest.raises(ValueError, match="no 'case'"):
        case_of({"extra_info": {}})
    with pytest.raises(ValueError, match="expected '0' or '1'"):
        label_of({"reward_model": {"ground_truth": "A"}})


def test_the_report_says_what_was_kept_and_why_not(tmp_path: Path) -> None:
    found = Selection(examples=[example(0, 0), example(1, 1), example(3, 1)], tokens=90, spent=True)  # type: ignore[list-item]
    found.admission.kept = 4
    found.admission.refused.update([Refusal.EASY, Refusal.IMPOSSIBLE, Refusal.EASY])
    told = write_report(tmp_path, found, {"judge": "j"})
    assert told["kept"] == {"0": 1, "1": 2}
    assert (told["seen"], told["passed"], told["policy_tokens"], told["pool_spent"]) == (7, 4, 90, True)
    assert told["refused"] == {"easy": 2, "impossible": 1}
    assert told["made_with"] == {"judge": "j"}
