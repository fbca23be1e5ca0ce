from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from calibration_fakes import calibration
from eval_fakes import judgment, scripted_judge

from eval.journal import to_line
from eval.quality import by_generator, calibrated_columns, compare, judged_columns, measure, read_judgments
from verifier.calibration import Beta, CalibrationError, Temperature, question_digest
from verifier.packs import LabelledCase
from verifier.types import Case


def labelled(id: str, label: Literal[0, 1] | None, question: str = "q") -> LabelledCase:
    return LabelledCase(Case(id=id, question="q", trace="t"), label, question)


PACK = [
    labelled("a", 1, "q1"),
    labelled("b", 0, "q1"),
    labelled("c", 1, "q2"),
    labelled("d", 0, "q2"),
    labelled("e", None),
]


def test_judgments_meet_their_labels_by_id() -> None:
    report = measure([judgment("d", 0.1), judgment("a", 0.9), judgment("c", 0.3), judgment("b", 0.2)], PACK)
    assert report.estimates["AUROC"].value == 1.0
    assert report.estimates["accuracy"].value == 0.75
    assert report.estimates["balanced accuracy"].value == 0.75
    assert (report.scored, report.right, report.not_judged, report.unlabelled) == (4, 2, 0, 0)


def test_what_was_not_judged_or_has_no_label_is_counted_and_never_scored() -> None:
    good = [judgment("a", 0.9), judgment("b", 0.2), judgment("d", 0.4)]
    report = measure([*good, judgment("c"), judgment("e", 0.99)], PACK)
    assert (report.scored, report.right, report.not_judged, report.unlabelled) == (3, 1, 1, 1)
    assert report.estimates == measure(good, PACK).estimates


def test_a_failure_without_a_label_is_a_failure() -> None:
    report = measure([judgment("a", 0.9), judgment("e")], PACK)
    assert (report.not_judged, report.unlabelled) == (1, 0)


def test_foreign_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="'z' is not in the pack"):
        measure([judgment("a", 0.9), judgment("z", 0.9)], PACK)


@pytest.mark.parametrize("judgments", [[], [judgment("a")], [judgment("e", 0.5)]])
def test_nothing_to_measure_is_said(judgments: list[object]) -> None:
    with pytest.raises(ValueError, match="nothing to measure"):
        measure(judgments, PACK)  # type: ignore[arg-type]


def test_the_intervals_draw_whole_questions() -> None:
    pack = [labelled(f"{q}{t}", t % 2, f"q{q}") for q in range(10) for t in range(4)]  # type: ignore[arg-type]
    alone = [LabelledCase(case.case, case.label, case.case.id) for case in pack]
    # Six questions are judged rightly throughout, four wrongly.
    judgments = [judgment(c.case.id, 0.9 if (c.label == 1) == (c.question_id < "q6") else 0.1) for c in pack]
    clustered, naive = (measure(judgments, known).estimates["accuracy"] for known in (pack, alone))
    assert clustered.value == naive.value == 0.6
    assert clustered.high - clustered.low > 1.5 * (naive.high - naive.low)


async def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """U+2028 and its like end a line for Python's splitlines, and for nothing else."""
    case = Case(id="x\u2028y\x85z", question="a\u2029b", trace="c\x0bd")
    made = [await scripted_judge().verify(case), judgment("fail")]
    (tmp_path / "j.jsonl").write_bytes(b"".join(map(to_line, made)))
    assert read_judgments(tmp_path / "j.jsonl") == made


@pytest.mark.parametrize("line", [b"{}", b"", b"\xff", b'{"id": "a"}'])
def test_a_line_that_is_no_judgment_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(to_line(judgment("a", 0.5)) + line + b"\n")
    with pytest.raises(ValueError, match=r"j\.jsonl, line 2: not a judgment"):
        read_judgments(path)


def test_the_torn_end_of_a_killed_run_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "judgments.jsonl"
    whole = to_line(judgment("a", 0.9))
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert [found.id for found in read_judgments(path)] == ["a"]
    path.write_bytes(whole[: len(whole) // 2] + b"\n" + whole)
    with pytest.raises(ValueError, match="line 1: not a judgment"):
        read_judgments(path)
    path.write_bytes(whole.rstrip(b"\n"))  # whole, but for its end
    assert len(read_judgments(path)) == 1


def test_a_number_that_belongs_to_a_failure_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(to_line(judgment("a")).replace(b'"p_correct":null', b'"p_correct":0.5'))
    with pytest.raises(ValueError, match="line 1: not a judgment"):
        read_judgments(path)


def test_an_empty_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").touch()
    assert read_judgments(tmp_path / "j.jsonl") == []


# ---- parts, pairs, calibrated ------------------------------------------------------------------------------------------


METRICS = {
    "AUROC", "AUPRC", "Brier", "log loss", "ECE", "ECE, equal mass", "smooth ECE", "AURC", "accuracy", "balanced accuracy",
}  # fmt: skip


def test_all_metrics_are_measured() -> None:
    judgments = [judgment("a", 0.9), judgment("b", 0.2), judgment("c", 0.3), judgment("d", 0.1)]
    found = measure(judgments, PACK)
    assert set(found.estimates) == METRICS
    assert found.estimates["Brier"].value == pytest.approx((0.01 + 0.04 + 0.49 + 0.01) / 4)
    assert found.estimates["AUPRC"].value == 1.0
    assert found.questions == 2


def test_traces_that_were_not_tried_are_not_counted() -> None:
    found = measure([judgment("a", 0.9), judgment("b", 0.2)], PACK)
    assert (found.scored, found.not_judged, found.unlabelled, found.questions) == (2, 0, 0, 1)


def test_each_generator_by_itself() -> None:
    def by(id: str, label: Literal[0, 1] | None, generator: str) -> LabelledCase:
        return LabelledCase(Case(id=id, question="q", trace="t"), label, f"q{id}", generator)

    pack = [by("a", 1, "x"), by("b", 0, "x"), by("c", 1, "y"), by("d", 0, "y"), by("e", None, "z")]
    judgments = [judgment("a", 0.9), judgment("b", 0.8), judgment("c", 0.9), judgment("d", 0.1), judgment("e", 0.5)]
    parts = by_generator(judged_columns(judgments, pack))
    assert {name: part.estimates["accuracy"].value for name, part in parts.items()} == {"x": 0.5, "y": 1.0}
    assert (parts["x"].scored, parts["x"].right) == (2, 1)


def test_two_judges_are_compared_on_what_both_have_judged() -> None:
    first = judged_columns([judgment("a", 0.9), judgment("b", 0.1), judgment("c", 0.9), judgment("d", 0.1)], PACK)
    second = judged_columns([judgment("d", 0.9), judgment("b", 0.1), judgment("a", 0.9), judgment("c")], PACK)
    found = compare(first, second)
    assert set(found.differences) == METRICS
    assert (found.traces, found.questions) == (3, 2)
    difference = found.differences["accuracy"]
    assert (difference.first, difference.second) == (1.0, pytest.approx(2 / 3))
    assert difference.difference.value == pytest.approx(1 / 3)


def test_judges_with_nothing_in_common_are_not_compared() -> None:
    with pytest.raises(ValueError, match="in common"):
        compare(judged_columns([judgment("a", 0.9)], PACK), judged_columns([judgment("b", 0.9)], PACK))


def test_calibrated_probabilities_take_the_place_of_what_was_said() -> None:
    columns = judged_columns([judgment("a", 0.9), judgment("b"), judgment("c", 0.1)], PACK)
    found = calibrated_columns(columns, PACK, calibration("j", Temperature(slope=0.5)), {"j"})
    assert found.p[[0, 2]] == pytest.approx([0.75, 0.25])
    assert np.isnan(found.p[1])
    assert found.verdicts.tolist() == [1, -1, 0]


def test_verdicts_follow_the_calibrated_probability() -> None:
    columns = judged_columns([judgment("a", 0.9)], PACK)
    found = calibrated_columns(columns, PACK, calibration("j", Beta(a=0, b=0, c=-1)), {"j"})
    assert found.verdicts.tolist() == [0]


def test_a_calibration_is_not_measured_on_what_it_was_fitted_on_nor_on_another_judge() -> None:
    columns = judged_columns([judgment("a", 0.9)], PACK)
    made = calibration("j")
    known = made.model_copy(
        update={"fitted": made.fitted.model_copy(update={"question_digests": [question_digest(PACK[0].case.question)]})}
    )
    with pytest.raises(CalibrationError, match="fitted on 1 of these 1 questions"):
        calibrated_columns(columns, PACK, known, {"j"})
    with pytest.raises(CalibrationError, match="fitted for the judge j…, not for other…"):
        calibrated_columns(columns, PACK, made, {"other"})
