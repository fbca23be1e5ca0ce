from pathlib import Path
from typing import Literal

import pytest
from eval_fakes import judgment, scripted_judge

from eval.packs import LabelledCase
from eval.quality import measure, read_judgments
from eval.run import to_line
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


def test_a_number_that_belongs_to_a_failure_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(to_line(judgment("a")).replace(b'"p_correct":null', b'"p_correct":0.5'))
    with pytest.raises(ValueError, match="line 1: not a judgment"):
        read_judgments(path)


def test_an_empty_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").touch()
    assert read_judgments(tmp_path / "j.jsonl") == []
