"""`medverify benchmark` and `medverify generate`; the latter with the real small model, on two questions and few tokens."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verifier.packs import read_pack, read_questions, write_rows

Cli = Callable[..., Any]

QUESTIONS = [
    {"id": f"q{number}", "question": text, "options": {"A": "Insulin", "B": "Warfarin", "C": "Rest", "D": "[/bold] Salt"},
     "answer": "A", "source": "made here"}
    for number, text in enumerate(["What lowers potassium fast?", "What lowers glucose?"])
]  # fmt: skip
GENERATE = ("--config", "laptop", "--samples", "3", "--max-tokens", "8", "--set", "judge.transformers.max_sequences=4")


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    write_rows(tmp_path / "asked.questions.jsonl", QUESTIONS)
    return tmp_path / "asked"


def test_the_list_names_licence_and_rows(cli: Cli) -> None:
    shown = cli("benchmark", "list").stdout
    for part in (
        "medqa",
        "1,273",
        "medmcqa",
        "4,183",
        "mmlu-med",
        "1,089",
        "medxpertqa",
        "2,450",
        "pubmedqa",
        "medec",
        "MIT",
    ):
        assert part in shown


def test_one_is_shown_with_its_place(cli: Cli) -> None:
    shown = cli("benchmark", "show", "mmlu-med").stdout
    assert "repository  cais/mmlu" in shown
    assert "college_medicine" in shown
    assert "licence  MIT" in shown
    unknown = cli("benchmark", "show", "medq")
    assert unknown.exit_code == 2
    assert "'medq' is no benchmark and no pack" in unknown.stderr
    assert "medq.provenance.json: no such file or directory" in unknown.stderr
    assert "The benchmarks are medqa, medmcqa, " in unknown.stderr


def test_a_file_becomes_a_pack_that_says_where_it_is_from(cli: Cli, tmp_path: Path) -> None:
    row = {"question": "What now?", "options": {"A": "Rest", "B": "Insulin"}, "answer_idx": "B", "meta_info": "step1"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    command = ("benchmark", "fetch", "medqa", "--from", tmp_path / "test.jsonl", "-o", tmp_path / "medqa")
    refused = cli(*command)
    assert refused.exit_code == 2
    assert "expected 1273 rows, found 1" in refused.stderr
    done = cli(*command, "--partial")
    assert done.exit_code == 0, done.stderr
    assert [question.id for question in read_questions(tmp_path / "medqa")] == ["medqa-test-00001"]
    assert cli("benchmark", "show", tmp_path / "medqa").stdout == done.stdout
    assert "complete  no" in done.stdout
    assert "licence on hub  not known" in done.stdout


def test_a_hub_that_is_out_of_reach_is_told_with_the_way_round(cli: Cli, tmp_path: Path) -> None:
    """The tests' environment takes the hub offline."""
    done = cli("benchmark", "fetch", "medqa", "-o", tmp_path / "medqa")
    assert done.exit_code == 2
    assert "GBaker/MedQA-USMLE-4-options at 0fb93dd23a7339b6dcd27e241cb9b5eca62d4d18 cannot be read" in done.stderr
    assert "with --from" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_overlap_is_reported_with_ids(cli: Cli, pack: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "pool.questions.jsonl.gz", [{"id": "p[1]", "question": "what LOWERS potassium fast", "answer": "A",
                                                       "options": {"A": "Insulin.", "B": "Rest"}}])  # fmt: skip
    shown = cli("benchmark", "overlap", pack, "--pool", tmp_path / "pool").stdout
    assert "q0" in shown
    assert "p[1]" in shown
    assert "of 2 questions 1 are in the pool word for word, 0 nearly; 1 of these with the same right answer" in shown
    found = json.loads(cli("benchmark", "overlap", pack, "--pool", tmp_path / "pool", "--json").stdout)
    assert found["pairs"] == [{"pool": str(tmp_path / "pool"), "question": "q0", "pooled": "p[1]", "kind": "exact",
                               "similarity": 1.0, "same_answer": True}]  # fmt: skip
    assert cli("benchmark", "overlap", pack, "--pool", tmp_path / "none").exit_code == 2


@pytest.mark.usefixtures("real_models")
def test_a_real_model_makes_a_pack_and_goes_on_where_it_was_cut(cli: Cli, pack: Path, tmp_path: Path) -> None:
    done = cli("generate", pack, "-o", tmp_path / "made" / "one", *GENERATE, "--written-price", "1000000", "--json")
    assert done.exit_code == 0, done.stderr
    cost = json.loads(done.stdout)
    rows = [json.loads(line) for line in (tmp_path / "made" / "one.traces.jsonl").read_bytes().splitlines()]
    assert len(rows) == cost["traces"] == len(read_pack(tmp_path / "made" / "one")) == 6
    assert len({row["reasoning"] for row in rows}) > 1
    for row in rows:
        assert row["generator"] == "smollm2-135m-instruct"
        assert 1 <= row["written_tokens"] <= 8
        assert row["prompt_tokens"] > 60
    assert cost["price"] == cost["written_tokens"] == sum(row["written_tokens"] for row in rows)
    with gzip.open(tmp_path / "made" / "one.questions.jsonl.gz") as lines:
        assert [json.loads(line) for line in lines] == QUESTIONS
    shown = cli("benchmark", "show", tmp_path / "made" / "one").stdout
    assert '"temperature": 0.7' in shown

    whole = (tmp_path / "made" / "one.traces.jsonl").read_bytes()
    (tmp_path / "two.traces.jsonl").write_bytes(b"\n".join(whole.split(b"\n")[:5])[:-20])
    again = cli("generate", pack, "-o", tmp_path / "two", *GENERATE)
    assert again.exit_code == 0, again.stderr
    assert "6 traces: " in again.stdout
    assert (tmp_path / "two.traces.jsonl").read_bytes() == whole

    other = cli("generate", pack, "-o", tmp_path / "two", *GENERATE, "--seed", "1")
    assert other.exit_code == 2
    assert "was made with other settings" in other.stderr


@pytest.mark.usefixtures("real_models")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--temperature", "0"), "at temperature 0 all samples"),
        (("--top-p", "0"), "top_p: Input should be greater than 0"),
        (("--max-tokens", "100000"), "question 'q0' needs"),
        (("--prompt", "no such file"), "the prompt cannot be read"),
    ],
)
def test_what_cannot_be_generated_is_bad_input(
    cli: Cli, pack: Path, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = cli("generate", pack, "-o", tmp_path / "out", *GENERATE, *arguments)
    assert done.exit_code == 2
    assert reason in done.stderr


def test_finished_traces_and_other_questions_are_left_alone(cli: Cli, pack: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "other.questions.jsonl", QUESTIONS[:1])
    assert "holds other questions" in cli("generate", pack, "-o", tmp_path / "other", *GENERATE).stderr
    write_rows(tmp_path / "old.traces.jsonl.gz", [])
    assert "old.traces.jsonl.gz is there already" in cli("generate", pack, "-o", tmp_path / "old", *GENERATE).stderr
