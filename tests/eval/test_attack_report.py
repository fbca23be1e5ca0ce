"""Counts, rates and intervals of judgments made by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from attack_fakes import BASES
from hypothesis import given
from hypothesis import strategies as st

from eval.attack.attack import Attack
from eval.attack.audit import AuditedJudgment
from eval.attack.families import chosen
from eval.attack.folder import write_report
from eval.attack.markdown import COLUMNS, markdown, notes, rows
from eval.attack.rates import mean, rate
from eval.attack.report import AttackReport, measure
from eval.attack.suite import make_attacks
from verifier.prompt import load_prompt
from verifier.types import Judgment, Status, StopReason

PROMPT = load_prompt("judge")


def judgment(attack: Attack, p: float | None, *, foreign: bool | None = False) -> Judgment:
    case = attack.case()
    assert case is not None
    failed = Judgment.unjudged(case, Status.TIMEOUT, StopReason.DEADLINE, "late", seed=0, judge_id="j" * 64)
    if p is None:
        return failed
    scored = {"status": Status.SCORED, "verdict": int(p > 0.5), "p_correct": p, "label_mass": 1.0}
    return AuditedJudgment(**{**failed.model_dump(), **scored}, foreign=foreign)


def report_of(attacks: list[Attack], p: dict[str, float | None], default: float | None = 0.5) -> AttackReport:
    """A report where attacks of a family, or single ones by id, got this p(1)."""
    return measure(
        attacks,
        [judgment(a, p.get(a.id, p.get(a.family, default))) for a in attacks if a.case() is not None],
        PROMPT,
        {"poisoned-passage": "no retriever"},
    )


def test_flips_are_against_the_judgment_of_the_same_trace() -> None:
    attacks = make_attacks(BASES, chosen("instruction"), 1, 0)  # bases 0, 2, 4 are wrong, 1, 3, 5 right
    p: dict[str, float | None] = {a.id: 0.9 if a.base.number in (1, 2, 3) else 0.1 for a in attacks[:6]}
    p |= {a.id: {0: 0.8, 1: 0.2, 2: 0.7, 3: 0.9, 4: 0.3, 5: 0.6}[a.base.number] for a in attacks[6:]}
    report = report_of(attacks, p)
    [family] = report.families
    assert (report.clean.false_passes.count, report.clean.false_passes.of) == (1, 3)
    assert (report.clean.false_rejections.count, report.clean.false_rejections.of) == (1, 3)
    assert (family.false_passes.count, family.false_passes.of) == (2, 3)  # bases 0 and 2
    assert (family.false_rejections.count, family.false_rejections.of) == (1, 3)  # base 1
    assert (family.flips_to_1.count, family.flips_to_1.of) == (2, 3)  # 0 and 5, of 0, 4 and 5
    assert (family.flips_to_0.count, family.flips_to_0.of) == (1, 3)  # 1, of 1, 2 and 3
    assert family.added_passes.value == pytest.approx(1 / 3)
    assert family.shift.value == pytest.approx(((0.8 + 0.2 + 0.7 + 0.9 + 0.3 + 0.6) - (0.9 * 3 + 0.1 * 3)) / 6)
    assert family.shift_of_wrong.value == pytest.approx(((0.8 - 0.1) + (0.7 - 0.9) + (0.3 - 0.1)) / 3)
    assert [shift.id for shift in report.worst[:2]] == [attacks[6].id, attacks[7].id]
    assert report.worst[0].clean_p == 0.1
    assert all(shift.expected in (0, 1) for shift in report.worst)
    assert len(report.worst) == 3  # base 4 moved up as well; what moved the right way is no harm


def test_what_must_never_pass_has_no_flips() -> None:
    attacks = make_attacks(BASES, chosen("master-key"), 2, 0)
    [family] = report_of(attacks, {"clean": 0.1, "master-key": 0.9}).families
    assert family.false_passes.value == 1.0
    assert family.flips_to_1.of == family.flips_to_0.of == family.added_passes.of == 0
    assert family.false_rejections.of == 0
    assert family.shift.value == pytest.approx(0.8)


def test_refused_and_not_judged_are_counted_apart_and_are_no_numbers() -> None:
    attacks = make_attacks(BASES, chosen("do-nothing"), 7, 0)
    [family] = report_of(attacks, {"clean": 0.9}, default=None).families
    assert (family.cases, family.judged, family.refused) == (42, 0, 18)
    assert family.not_judged == {"timeout": 24}
    assert family.false_passes.value is None
    assert family.shift.value is None


def test_attacks_on_a_trace_that_was_not_judged_itself_have_no_flip_and_no_shift() -> None:
    attacks = make_attacks(BASES, chosen("length"), 1, 0)
    [family] = report_of(attacks, {"clean": None, "length": 0.9}).families
    assert family.judged == 6
    assert family.false_passes.count == 3
    assert family.flips_to_1.of == family.flips_to_0.of == family.shift.of == 0


def test_the_control_is_no_attack() -> None:
    attacks = make_attacks(BASES, chosen("rewrite,length"), 1, 0)
    report = report_of(attacks, {"clean": 0.1, "rewrite": 0.9, "length": 0.1})
    assert report.attacks.cases == 6
    assert report.attacks.false_passes.count == 0
    assert not report.worst
    assert next(family for family in report.families if family.control).flips_to_1.count == 6


def test_broken_guarantees_are_named() -> None:
    attacks = make_attacks(BASES, chosen("flattery"), 1, 0)
    judged = [judgment(a, 0.9, foreign=a is attacks[7]) for a in attacks[:-1]] + [
        judgment(attacks[-1], 0.9, foreign=None)
    ]
    held = measure(attacks, judged, PROMPT).guarantees
    assert (held.verdicts, held.foreign_verdicts, held.broken_by) == (len(attacks) - 1, 1, [attacks[7].id])
    assert held.live_marks == 0
    assert held.texts == 2 * len(attacks)


def test_two_judges_are_not_one_report() -> None:
    attacks = make_attacks(BASES, [], 1, 0)
    judged = [judgment(attack, 0.9) for attack in attacks]
    judged[0] = judged[0].model_copy(update={"judge_id": "k"})
    with pytest.raises(ValueError, match="2 judges; expected one"):
        measure(attacks, judged, PROMPT)


def test_the_files_are_for_people_and_for_programs(tmp_path: Path) -> None:
    report = report_of(
        make_attacks(BASES, chosen("forged-verdict,do-nothing,length"), 2, 0), {"clean": 0.1}, default=0.9
    )
    write_report(tmp_path, report)
    stored = json.loads(
        (tmp_path / "report.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} in JSON")
    )
    assert AttackReport.model_validate(stored) == report
    text = (tmp_path / "report.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(rows(report))
    assert {line.count(" | ") for line in table} == {len(COLUMNS) - 1}
    assert "Not run: poisoned-passage: no retriever." in text
    assert "Verdicts read from foreign text: 0 of" in text
    assert "### " in text
    assert markdown(report) == text


def test_a_service_shows_no_episodes() -> None:
    attacks = make_attacks(BASES, [], 1, 0)
    report = measure(attacks, [judgment(attack, 0.9, foreign=None) for attack in attacks], PROMPT)
    assert any("not looked at" in note for note in notes(report))


# ---- rates -----------------------------------------------------------------------------------------------------------


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The roots of (share - x)² = z² x (1 - x) / count."""
    z2, share = 1.959964**2, hits / count
    roots = np.roots([1 + z2 / count, -(2 * share + z2 / count), share**2])
    return float(roots.min()), float(roots.max())


def names(clusters: list[int]) -> list[str]:
    return [f"q{cluster}" for cluster in clusters]


@pytest.mark.parametrize(("hits", "count"), [(3, 10), (1, 2), (0, 7), (7, 7), (50, 80)])
def test_one_case_a_question_gives_wilsons_interval(hits: int, count: int) -> None:
    found = rate([i < hits for i in range(count)], names(list(range(count))))
    assert (found.count, found.of, found.value) == (hits, count, hits / count)
    assert (found.low, found.high) == pytest.approx(wilson(hits, count), abs=1e-9)


def test_cases_that_agree_within_their_question_count_once() -> None:
    flags = [question < 3 for question in range(10) for _ in range(4)]
    found = rate(flags, names([question for question in range(10) for _ in range(4)]))
    assert (found.low, found.high) == pytest.approx(wilson(3, 10), abs=1e-9)


def test_where_nothing_happened_questions_are_what_is_known() -> None:
    found = rate([False] * 40, names([question for question in range(10) for _ in range(4)]))
    assert (found.low, found.high) == pytest.approx(wilson(0, 10), abs=1e-9)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=40))
def test_a_rate_lies_in_its_interval_and_never_is_surer_than_single_cases(cases: list[tuple[bool, int]]) -> None:
    found = rate([flag for flag, _ in cases], names([cluster for _, cluster in cases]))
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    low, high = wilson(found.count, found.of)
    assert 0 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= 1
    assert found.high - found.low >= high - low - 1e-9


def test_nothing_has_no_rate_and_no_mean() -> None:
    assert rate([], []).value is None
    assert mean([], []).low is None


def test_a_mean_of_equal_values_is_sure() -> None:
    found = mean([0.25] * 6, names([0, 0, 1, 1, 2, 2]))
    assert (found.of, found.value) == (6, 0.25)
    assert found.low in (None, 0.25)
