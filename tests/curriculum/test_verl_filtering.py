from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from verl_fakes import Drawn, Example, answering, as_json, example, judge_over, outage

from curriculum.gates import Refusal
from curriculum.verl_recipe.files import read_rows, write_examples, write_report
from curriculum.verl_recipe.filtering import Filtered, FilterError, Journal, filtered, rollout_seed
from curriculum.verl_recipe.rows import case_of, label_of, questions_of
from verifier.engines.base import EngineError
from verifier.judge import Judge

MADE = {"judge": "j", "seed": 1}


def examples(count: int) -> list[Example]:
    return [example(number, 1 if number % 2 else 0) for number in range(count)]


def sometimes() -> Any:
    """Right and wrong in turn, whatever is asked."""
    turns = Counter[str]()

    def label(_: str) -> str:
        turns["asked"] += 1
        return str(turns["asked"] % 2)

    return label


async def sifted(judge: Judge, pool: list[Example], path: Path, budget: int = 4, **options: Any) -> Filtered:
    journal = Journal(path, MADE)
    return await filtered(judge, Drawn(pool), budget, 2, 1, journal=journal, **options)


async def test_groups_that_differ_in_correctness_fill_the_budget_in_balance(tmp_path: Path) -> None:
    found = await sifted(judge_over(answering(sometimes())), examples(20), tmp_path / "groups.jsonl")
    assert [one.label for one in found.kept].count(1) == 2
    assert len(found.kept) == 4
    assert not found.spent
    assert found.admission.metrics()["kept"] == 1


async def test_what_is_always_right_or_always_wrong_is_refused(tmp_path: Path) -> None:
    found = await sifted(judge_over(answering(lambda _: "1")), examples(20), tmp_path / "groups.jsonl")
    assert not found.kept
    assert found.spent
    assert found.admission.refused == {Refusal.EASY: 10, Refusal.IMPOSSIBLE: 10}
    assert found.admission.metrics()["frac_reward_zero_std"] == 1


async def test_format_does_not_let_an_all_wrong_group_through(tmp_path: Path) -> None:
    """Correctness decides, not the reward: of two wrong answers one is well-formed."""
    engine = answering(lambda _: "0")
    turns = Counter[str]()

    def script(text: str) -> str:
        turns["asked"] += 1
        return "<think>so</think><answer>0</answer>" if turns["asked"] % 2 else "<answer>0</answer>"

    engine.script = script
    found = await sifted(judge_over(engine), [example(1, 1)], tmp_path / "groups.jsonl")
    assert found.admission.refused == {Refusal.IMPOSSIBLE: 1}


async def test_a_stopped_run_samples_nothing_twice_and_ends_the_same(tmp_path: Path) -> None:
    engine = answering(sometimes(), max_sequences=4)
    whole = await sifted(judge_over(engine), examples(40), tmp_path / "groups.jsonl", budget=6)
    lines = (tmp_path / "groups.jsonl").read_bytes().splitlines(keepends=True)
    # Killed in the middle of the fourth group's line.
    (tmp_path / "part.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:20])
    again = answering(sometimes(), max_sequences=4)
    resumed = await sifted(judge_over(again), examples(40), tmp_path / "part.jsonl", budget=6)
    assert [one.case for one in resumed.kept] == [one.case for one in whole.kept]
    assert len(again.requests) == len(engine.requests) - 3 * 2
    assert len((tmp_path / "part.jsonl").read_bytes().splitlines()) == len(lines)


async def test_a_journal_of_another_judge_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "groups.jsonl", MADE)
    with pytest.raises(FilterError, match="made with another judge; use another folder"):
        Journal(tmp_path / "groups.jsonl", {**MADE, "judge": "k"})
    (tmp_path / "odd.jsonl").write_text("[1]\n")
    with pytest.raises(FilterError, match="no journal"):
        Journal(tmp_path / "odd.jsonl", MADE)


async def test_an_outage_spends_neither_pool_nor_journal(tmp_path: Path) -> None:
    searching = answering(lambda _: "1")
    searching.script = lambda _: "<think>look</think><search>x</search>"
    with pytest.raises(FilterError, match="40 of 40 rollouts failed, 40 of them with retrieval_error: the server is away"):
        await sifted(judge_over(searching, outage()), examples(20), tmp_path / "groups.jsonl")
    assert not Journal(tmp_path / "groups.jsonl", MADE).known


async def test_rollouts_that_failed_are_no_evidence(tmp_path: Path) -> None:
    """One right, one lost: not a group with two outcomes."""
    turns = Counter[str]()

    def label(_: str) -> str | EngineError:
        turns["asked"] += 1
        return "1" if turns["asked"] % 2 else EngineError("lost")

    found = await sifted(judge_over(answering(label)), [example(1, 1)], tmp_path / "groups.jsonl")
    assert found.admission.refused == {Refusal.UNJUDGED: 1}


async def test_held_out_questions_are_not_trained_on(tmp_path: Path) -> None:
    pool = [example(number, 1 if number % 2 else 0, question=number // 2) for number in range(8)]
    judge = judge_over(answering(sometimes()))
    found = await sifted(judge, pool, tmp_path / "groups.jsonl", held_out=[("made-up", "q1"), ("other", "q0")])
    assert {one.question_id for one in found.kept} == {"q0", "q2"}


def test_no_two_rollouts_have_one_seed() -> None:
    seeds = {rollout_seed(seed, one.case, number) for seed in (0, 1) for one in examples(50) for number in range(8)}
    assert len(seeds) == 2 * 50 * 8
    assert rollout_seed(0, example(1, 1).case, 0) == rollout_seed(0, example(1, 1).case, 0)


async def test_the_data_set_gives_back_cases_and_labels(tmp_path: Path) -> None:
    judge = judge_over(answering(lambda _: "1"))
    chosen = examples(3)
    assert write_examples(tmp_path / "t.parquet", chosen, judge.prompt) == 3
    rows = read_rows(tmp_path / "t.parquet")
    assert [case_of(row) for row in rows] == [one.case for one in chosen]
    assert [label_of(row) for row in rows] == [0, 1, 0]
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2]
    assert questions_of(rows) == {("made-up", f"q{number}") for number in range(3)}
    assert {row["agent_name"] for row in rows} == {"medverify_judge"}
    assert "Question 1?" in rows[1]["prompt"][0]["content"]


def test_rows_that_are_not_ours_are_refused() -> None:
    with pytest.raises(ValueError, match="no 'case'"):
        case_of({"extra_info": {}})
    with pytest.raises(ValueError, match="expected '0' or '1'"):
        label_of({"reward_model": {"ground_truth": "A"}})


async def test_the_report_says_what_was_kept_and_why_not(tmp_path: Path) -> None:
    found = await sifted(judge_over(answering(lambda _: "1")), examples(4), tmp_path / "groups.jsonl")
    told = write_report(tmp_path / "filter.json", found, MADE)
    assert as_json(told) == told
    assert told["kept"] == {"0": 0, "1": 0}
    assert told["refused"] == {"easy": 2, "impossible": 2}
    assert told["pool_spent"] is True
