from collections.abc import Sequence
from pathlib import Path

import pytest
from pack_fakes import judgment, labelled, pack, write_pack

from eval.compare import compare, write_comparison
from eval.journal import to_line
from eval.report import tables
from eval.report.schema import Comparison, JudgeFacts
from eval.runfolder import PackRun, Run, RunError, RunFolder, ScorerRun
from verifier.packs import LabelledCase

CASES = pack([["A", "A", "B"], ["B", "A", "B"], ["A", "C", "B"], ["B", "B", "A"]])


def run_folder(
    path: Path, cases: Sequence[LabelledCase], p: Sequence[float | None], model: str = "m", judged: bool = True
) -> Path:
    path.mkdir(parents=True)
    prefix = write_pack(path / "pack", cases)
    folder = RunFolder(path)
    folder.create()
    lines = [to_line(judgment(one, value)) for one, value in zip(cases, p, strict=False)]
    folder.journal("pack", "").write_bytes(b"".join(lines))
    folder.write_run(
        Run(
            medverify="1",
            packs=[PackRun(name="pack", prefix=str(prefix))],
            traces=None,
            questions=None,
            sample_seed=0,
            scorers=[ScorerRun(scorer="judge", suffix="", judge_id=model * 64, seed=0)] if judged else [],
            judge=JudgeFacts(model=model, mode="free", judge_id=model * 64, index="i", seeds=[0]),
            settings={},
        )
    )
    return path


GOOD = [0.9 if one.label == 1 else 0.1 for one in CASES]
BAD = [1 - p for p in GOOD]


@pytest.fixture
def found(tmp_path: Path) -> Comparison:
    return compare(run_folder(tmp_path / "good", CASES, GOOD), run_folder(tmp_path / "bad", CASES, BAD))


def test_differences_are_first_minus_second(found: Comparison) -> None:
    assert (found.first, found.second) == ("good", "bad")
    (pack_found,) = found.packs
    rows = {row.name: row for row in pack_found.rows}
    assert (rows["AUROC"].first, rows["AUROC"].second, rows["AUROC"].difference.value) == (1.0, 0.0, 1.0)
    assert rows["accuracy"].difference.value == 1.0
    assert rows["Brier"].difference.value == pytest.approx(0.01 - 0.81)
    assert rows["best-of-n, N = 3"].first == 1.0
    assert rows["best-of-n, N = 3"].second == 0.0
    assert (rows["AUROC"].p_value or 1) < 0.1  # four questions cannot say more


def test_a_run_against_itself_differs_in_nothing(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "a" / "run", CASES, GOOD)
    other = run_folder(tmp_path / "b" / "run", CASES, GOOD, model="n")
    found = compare(one, other)
    assert all(row.difference.value == 0 for row in found.packs[0].rows)
    assert all(row.p_value is None or row.p_value > 0.9 for row in found.packs[0].rows)
    assert found.first == f"run (m, {'m' * 8})"  # folders of one name are told apart


def test_only_shared_traces_count(tmp_path: Path) -> None:
    """Of those judged by one run only, and of those whose text is another, nothing is compared."""
    changed = [labelled(0, 0, text="Another text."), *CASES[1:8]]
    one = run_folder(tmp_path / "one", CASES, [None, None, *GOOD[2:]])
    other = run_folder(tmp_path / "other", changed, GOOD)
    (pack_found,) = compare(one, other).packs
    assert (pack_found.traces, pack_found.judged) == (7, 6)
    assert pack_found.questions == pack_found.come_to == 3


def test_selection_is_compared_on_questions_that_both_runs_have_come_to(tmp_path: Path) -> None:
    """A run that stands at a third is not worse for it: a judge is its own equal, wherever it was broken off."""
    cases = pack([["A", "B", "B"], ["B", "A", "B"], ["A", "C", "B"]] * 4)
    knows = [0.9 if one.label == 1 else 0.1 for one in cases]
    whole = run_folder(tmp_path / "whole", cases, knows)
    begun = run_folder(tmp_path / "begun", cases, [None, *knows[1:13]])  # four questions and a trace; one failed
    found = compare(whole, begun)
    (pack_found,) = found.packs
    assert (pack_found.questions, pack_found.come_to, pack_found.judged) == (12, 4, 12)
    rows = {row.name: row for row in pack_found.rows}
    best = rows["best-of-n, N = 3"]
    assert (best.first, best.second) == (1.0, 0.75)  # the failure costs its question the right answer
    (table,) = tables.comparison(found)
    assert "on the 4 questions all of whose traces both have come to" in table.note
    again = compare(run_folder(tmp_path / "third", cases, knows[:12]), whole).packs[0]
    assert [row.difference.value for row in again.rows] == [0.0] * len(again.rows)
    assert {row.name for row in again.rows} >= {"best-of-n, N = 3", "hard, N = 3", "soft, N = 3"}


def test_runs_that_share_no_whole_question_have_no_selection_to_compare(tmp_path: Path) -> None:
    one, other = (run_folder(tmp_path / name, CASES, p) for name, p in (("one", GOOD), ("other", GOOD[:2])))
    (pack_found,) = compare(one, other).packs
    assert pack_found.come_to == 0
    assert not [row for row in pack_found.rows if "N =" in row.name]


def test_runs_that_share_nothing_are_refused(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "one", CASES, GOOD)
    other = run_folder(tmp_path / "other", [labelled(8, 0)], [0.5])
    with pytest.raises(RunError, match="share no trace"):
        compare(one, other)
    with pytest.raises(RunError, match="no judge ran there"):
        compare(one, run_folder(tmp_path / "third", CASES, [], judged=False))


def test_a_comparison_is_written_as_a_page(found: Comparison, tmp_path: Path) -> None:
    path = write_comparison(tmp_path / "out", found)
    text = path.read_text("utf-8")
    assert "good against bad" in text
    assert "-0.800" in text
    assert "AUROC" in (tmp_path / "out" / "comparison.md").read_text("utf-8")
    read = Comparison.model_validate_json((tmp_path / "out" / "comparison.json").read_bytes())
    assert read == found
