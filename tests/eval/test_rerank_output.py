import json
import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rerank_fakes import JUDGE_ID, read_lines, run, sample, write_lines

from eval.rerank.options import Detail, Pairing
from eval.rerank.samples import Columns


def reranked(tmp_path: Path, records: Sequence[Any], name: str = "out.jsonl", **options: Any) -> list[Any]:
    columns = options.pop("columns", Columns())
    run(write_lines(tmp_path / "in.jsonl", records), tmp_path / name, columns=columns, **options)
    return read_lines(tmp_path / name)


def test_rows_are_kept_as_they_are_and_the_judgment_is_added(tmp_path: Path) -> None:
    row = b'{"trace" : "0.7 \xc3\xa9\\u00e9", "n": 1.50e3, "question": "q", "big": 12345678901234567890123 }  '
    reranked(tmp_path, [row])
    added = {"p_correct": 0.7, "verdict": 1, "status": "scored", "rank": 1, "judge_id": JUDGE_ID}
    (line,) = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert line == row.strip().removesuffix(b" }") + b', "medverify": ' + json.dumps(added).encode() + b"}"


def test_best_first_and_what_was_not_judged_last(tmp_path: Path) -> None:
    words = ["unclear", "0.2", "0.9", "down", "0.9 too", "0.5"]
    found = reranked(tmp_path, [sample("q", word) for word in words])
    assert [row["medverify"]["p_correct"] for row in found] == [0.9, 0.9, 0.5, 0.2, None, None]
    assert [row["medverify"]["rank"] for row in found] == [1, 1, 3, 4, None, None]
    assert {row["medverify"]["status"] for row in found[4:]} == {"unparseable", "engine_failed"}
    assert [row["medverify"]["verdict"] for row in found[4:]] == [None, None]


def test_questions_come_in_the_order_of_their_first_rows_wherever_the_others_lie(tmp_path: Path) -> None:
    rows = [sample("b", "0.1"), sample("a", "0.2"), sample("b", "0.3"), sample("c", "0.4"), sample("a", "0.5")]
    assert [(row["question"], row["trace"]) for row in reranked(tmp_path, rows)] == [
        ("b", "0.3"), ("b", "0.1"), ("a", "0.5"), ("a", "0.2"), ("c", "0.4"),
    ]  # fmt: skip


def test_a_question_is_its_text_and_its_options_unless_a_column_says_so(tmp_path: Path) -> None:
    rows = [sample("Which?", f"0.{n}", options={"A": "xyz"[n % 2]}, key=n % 3) for n in range(6)]
    by_text = reranked(tmp_path, rows, columns=Columns(options="options"))
    assert [row["medverify"]["rank"] for row in by_text] == [1, 2, 3] * 2
    by_key = reranked(tmp_path, rows, "keyed.jsonl", columns=Columns(options="options"), group="key")
    assert [(row["key"], row["medverify"]["rank"]) for row in by_key] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]


def test_a_row_without_its_group_is_rejected(tmp_path: Path) -> None:
    rows = [sample("q", "0.1", key=1), sample("q", "0.2"), sample("q", "0.3", key=None)]
    assert [row["trace"] for row in reranked(tmp_path, rows, group="key")] == ["0.1"]
    rejected = read_lines(tmp_path / "out.jsonl.rejected.jsonl")
    assert [row["line"] for row in rejected] == [2, 3]
    assert rejected[0]["problems"] == ["key: expected the question's group, found nothing"]
    assert json.loads(rejected[0]["row"]) == rows[1]


@settings(max_examples=25)  # each writes and syncs two runs
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["0.1", "0.5", "0.9", "unclear"])), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_ranking_is_sorting_and_does_not_depend_on_the_order_of_the_file(
    drawn: list[tuple[int, str]], shuffle: random.Random
) -> None:
    rows = [sample(f"q{question}", f"{word} {number}") for number, (question, word) in enumerate(drawn)]
    with TemporaryDirectory() as folder:
        found = reranked(Path(folder), rows)
        shuffle.shuffle(rows)
        shuffled = reranked(Path(folder), rows, "shuffled.jsonl")

    def by_question(lines: list[Any]) -> dict[str, list[str]]:
        return {
            q: [line["trace"] for line in lines if line["question"] == q] for q in {line["question"] for line in lines}
        }

    assert by_question(found) == by_question(shuffled)
    assert sorted(row["trace"] for row in found) == sorted(row["trace"] for row in rows)
    for question, traces in by_question(found).items():
        words = [trace.split()[0] for trace in traces]
        assert words == sorted(words, key=lambda word: 1.0 if word == "unclear" else -float(word)), question
    assert list(dict.fromkeys(row["question"] for row in shuffled)) == list(
        dict.fromkeys(row["question"] for row in rows)
    )


# ---- how much is written ---------------------------------------------------------------------------------------------


def test_details(tmp_path: Path) -> None:
    rows = [sample("q", "0.7")]
    (critique,) = reranked(tmp_path, rows, "c.jsonl", detail=Detail.CRITIQUE)
    (full,) = reranked(tmp_path, rows, "f.jsonl", detail=Detail.FULL)
    assert critique["medverify"]["reasoning"].startswith('It "says" 0.7.')
    assert critique["medverify"]["stop_reason"] == "answered"
    assert "searches" not in critique["medverify"]
    assert full["medverify"]["searches"] == []
    assert full["medverify"]["usage"]["policy_tokens"] == 7
    assert "id" not in full["medverify"]


def test_another_column_may_take_it(tmp_path: Path) -> None:
    (row,) = reranked(tmp_path, [sample("q", "0.7", medverify="mine")], into="judge é")
    assert row["medverify"] == "mine"
    assert row["judge é"]["rank"] == 1


def test_keeping_the_best(tmp_path: Path) -> None:
    rows = [sample("a", "0.2"), sample("a", "0.9"), sample("b", "unclear"), sample("a", "unclear"), sample("c", "0.3")]
    assert [row["trace"] for row in reranked(tmp_path, rows, "1.jsonl", keep_best=1)] == ["0.9", "0.3"]
    assert [row["trace"] for row in reranked(tmp_path, rows, "5.jsonl", keep_best=5)] == ["0.9", "0.2", "0.3"]
    assert [row["trace"] for row in reranked(tmp_path, rows, "p.jsonl", min_p=0.3)] == ["0.9", "0.3"]
    assert [row["trace"] for row in reranked(tmp_path, rows, "0.jsonl", min_p=0.0)] == ["0.9", "0.2", "0.3"]


def test_counts_are_of_all_samples_whatever_is_kept(tmp_path: Path) -> None:
    rows = [
        sample("a", "0.2"),
        sample("a", "0.9"),
        sample("b", "unclear"),
        b"{",
        sample("c", "0.4"),
        sample("c", "down"),
    ]
    done = run(write_lines(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", keep_best=1)
    assert (
        done.lines,
        done.figures.samples,
        done.rejected,
        done.figures.questions,
        done.figures.unjudged_questions,
    ) == (2, 5, 1, 3, 1)
    assert done.figures.statuses == {"engine_failed": 1, "scored": 3, "unparseable": 1}
    assert done.figures.mean_p == pytest.approx(0.5)
    assert done.figures.mean_best_p == pytest.approx(0.65)


# ---- a row with a list of samples ------------------------------------------------------------------------------------

LIST = {"id": "x", "question": "q", "answers": ["0.2", {"text": "0.9"}, "unclear", "", "0.5"]}
LISTED = Columns(samples="answers", trace="text")


def test_a_list_of_samples_is_put_in_order(tmp_path: Path) -> None:
    (row,) = reranked(tmp_path, [LIST], columns=LISTED)
    assert row["id"] == "x"
    assert row["answers"] == [{"text": "0.9"}, "0.5", "0.2", "unclear"]
    assert [found["sample"] for found in row["medverify"]] == [1, 4, 0, 2]
    assert [found["rank"] for found in row["medverify"]] == [1, 2, 3, None]
    (rejected,) = read_lines(tmp_path / "out.jsonl.rejected.jsonl")
    assert rejected["problems"] == ["answers[3]: String should have at least 1 character"]


def test_equal_questions_in_two_rows_are_two(tmp_path: Path) -> None:
    found = reranked(tmp_path, [LIST, LIST], columns=LISTED, keep_best=1)
    assert [row["answers"] for row in found] == [[{"text": "0.9"}]] * 2


def test_pairs_from_a_list(tmp_path: Path) -> None:
    (pair,) = reranked(tmp_path, [LIST], columns=LISTED, pairs=Pairing.BEST_WORST, id="id")
    assert (pair["chosen"], pair["rejected"], pair["chosen_id"], pair["rejected_id"]) == ("0.9", "0.2", "x.1", "x.0")


# ---- preference pairs ------------------------------------------------------------------------------------------------


def test_a_pair_is_the_best_and_the_worst_that_were_judged(tmp_path: Path) -> None:
    rows = [
        sample("a", "0.25", options={"A": "x", "B": "y"}), sample("b", "0.9"), sample("a", "0.75", options={"A": "x", "B": "y"}),
        sample("a", ["0.125", "two"], options={"A": "x", "B": "y"}), sample("a", "unclear", options={"A": "x", "B": "y"}),
    ]  # fmt: skip
    (pair,) = reranked(tmp_path, rows, columns=Columns(options="options"), pairs=Pairing.BEST_WORST)
    assert pair == {
        "prompt": "a\nA. x\nB. y", "chosen": "0.75", "rejected": "0.125\ntwo", "margin": 0.625, "p_chosen": 0.75,
        "p_rejected": 0.125, "chosen_id": 3, "rejected_id": 4, "judge_id": JUDGE_ID,
    }  # fmt: skip


def test_all_pairs_above_the_margin(tmp_path: Path) -> None:
    rows = [sample("a", f"{p} {n}") for n, p in enumerate(("0.1", "0.3", "0.3", "0.8", "unclear"))]

    def margins(name: str, **options: Any) -> list[tuple[float, float]]:
        found = reranked(tmp_path, rows, name, pairs=Pairing.ALL, **options)
        return [(pair["p_chosen"], pair["p_rejected"]) for pair in found]

    assert margins("1.jsonl") == [(0.8, 0.3), (0.8, 0.3), (0.8, 0.1), (0.3, 0.1), (0.3, 0.1)]
    assert margins("2.jsonl", min_margin=0.5) == [(0.8, 0.3), (0.8, 0.3), (0.8, 0.1)]
    assert margins("3.jsonl", min_p=0.9) == []
    assert margins("4.jsonl", min_p=0.8, min_margin=0.6) == [(0.8, 0.1)]


def test_nothing_is_preferred_to_itself(tmp_path: Path) -> None:
    rows = [sample("a", "0.5"), sample("a", "0.5 b"), sample("b", "0.5")]
    assert reranked(tmp_path, rows, pairs=Pairing.ALL) == []
    assert reranked(tmp_path, rows, "2.jsonl", pairs=Pairing.BEST_WORST) == []


def test_a_row_that_has_the_column_already_is_rejected(tmp_path: Path) -> None:
    (row,) = reranked(tmp_path, [sample("q", "0.1"), sample("q", "0.2", medverify=1)])
    assert row["trace"] == "0.1"
    (rejected,) = read_lines(tmp_path / "out.jsonl.rejected.jsonl")
    assert rejected["problems"] == ["medverify: the judgment is written to this column, and the row has it already"]


def test_half_a_character_elsewhere_in_a_row_is_kept(tmp_path: Path) -> None:
    (row,) = reranked(tmp_path, [{**LIST, "note": "\ud800é"}], columns=LISTED)
    assert row["note"] == "\ud800é"
