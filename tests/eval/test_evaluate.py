"""All figures of a pack, on packs small enough to count by hand."""

from dataclasses import replace

import numpy as np
import pytest
from pack_fakes import judgment, pack

from eval.evaluation.evaluate import ALL, Judged, evaluate
from eval.report.schema import Compared, PackReport
from verifier.calibration import question_digest
from verifier.types import Judgment

#: Majority: right, a tie of two, wrong, nothing readable. Any right: the first two.
ANSWERS = [["A", "A", "B", "A"], ["A", "B", "A", "B"], ["B", "B", "C", None], [None, None, None, None]]
CASES = pack(ANSWERS, generators=("x", "y"))
PLAIN = pack(ANSWERS)  # the same by one author, which is quicker to measure
#: A judge that knows.
ORACLE = [judgment(one, 0.9 if one.label == 1 else 0.1) for one in CASES]
#: One that is wrong about the second question.
FOOLED = [one.model_copy(update={"p_correct": 1 - one.p_correct, "verdict": 1 - one.verdict}) if one.id[:2] == "q1" else one
          for one in ORACLE if one.p_correct is not None and one.verdict is not None]  # fmt: skip


@pytest.fixture(scope="module")
def oracle() -> PackReport:
    return evaluate("pack", CASES, [Judged("judge", 0, ORACLE, seconds=2.0)])


def selection(report: PackReport, strategy: str, scorer: str = "", generator: str = ALL) -> dict[int, float | None]:
    (row,) = [s for s in report.selection if (s.strategy, s.scorer, s.generator) == (strategy, scorer, generator)]
    return {n: found.value for n, found in row.accuracy.items()}


def verification(report: PackReport, scorer: str, generator: str = ALL) -> dict[str, float | None]:
    (row,) = [v for v in report.verification if (v.scorer, v.generator) == (scorer, generator)]
    return {name: found.value for name, found in row.figures.items()}


def choices_beside(report: PackReport, other: str) -> dict[str, Compared]:
    """Paired differences of what the judge and another choose."""
    (pair,) = [pair for pair in report.paired if pair.second == other]
    return {row.name: row for row in pair.rows if "N =" in row.name}


def test_votes_without_a_judge() -> None:
    report = evaluate("pack", CASES)
    whole, of_x, of_y = report.votes
    assert (whole.generator, of_x.generator, of_y.generator) == (ALL, "x", "y")
    assert whole.mean.value == pytest.approx(5 / 16)
    assert whole.majority.value == pytest.approx((1 + 0.5) / 4)
    assert whole.any_right.value == 0.5
    assert of_x.majority.value == pytest.approx((0.5 + 1) / 4)
    assert of_y.mean.value == pytest.approx(2 / 8)
    assert whole.mean.low is not None
    assert whole.mean.low < 5 / 16 < whole.mean.high
    assert report.composition.unreadable == 5
    assert report.composition.labelled == 11
    assert report.composition.generators == {"x": 8, "y": 8}
    assert not report.conduct
    assert not report.examples


def test_a_judge_that_knows_reaches_the_ceiling(oracle: PackReport) -> None:
    for strategy in ("best-of-n", "hard", "soft"):
        assert selection(oracle, strategy, "judge")[4] == pytest.approx(0.5)
    assert selection(oracle, "any right") == pytest.approx({1: 5 / 16, 2: (1 + 5 / 6) / 4, 4: 0.5})
    assert selection(oracle, "majority")[1] == pytest.approx(5 / 16)
    assert selection(oracle, "best-of-n", "judge")[1] == pytest.approx(5 / 16)
    assert selection(oracle, "majority")[4] == pytest.approx(1.5 / 4)
    assert verification(oracle, "judge")["AUROC"] == 1.0
    assert verification(oracle, "judge")["accuracy"] == 1.0
    assert verification(oracle, "judge")["Brier"] == pytest.approx(0.01)
    assert verification(oracle, "judge")["ECE"] == pytest.approx(0.1)


def test_each_baseline_stands_beside_the_judge(oracle: PackReport) -> None:
    scorers = {row.scorer for row in oracle.verification if row.generator == ALL}
    assert scorers == {"judge", "random", "length", "self-consistency", "answer frequency"}
    found = verification(oracle, "self-consistency")
    assert "Brier" not in found  # its p is an order, no probability
    assert 0.5 < (found["AUROC"] or 0) < 1
    assert selection(oracle, "best-of-n", "answer frequency")[4] is not None
    assert set(selection(oracle, "best-of-n", "random").values()) == {
        selection(oracle, "majority")[1]
    }  # one is as good
    assert {row.second for row in oracle.paired} == scorers - {"judge"}
    (pair,) = [row for row in oracle.paired if row.second == "random"]
    by_name = {row.name: row for row in pair.rows}
    auroc = by_name["AUROC"]
    assert auroc.first == 1.0
    assert auroc.difference.value == pytest.approx(1 - (auroc.second or 0))


def test_figures_by_generator(oracle: PackReport) -> None:
    assert {row.generator for row in oracle.verification} == {ALL, "x", "y"}
    assert {row.generator for row in oracle.selection} == {ALL, "x", "y"}
    traces = {row.generator: row.traces for row in oracle.verification if row.scorer == "judge"}
    assert traces == {ALL: 11, "x": 6, "y": 5}
    assert list(selection(oracle, "majority", generator="x")) == [1, 2]


def test_a_pack_by_one_author_has_one_group() -> None:
    report = evaluate("pack", pack(ANSWERS), [])
    assert [votes.generator for votes in report.votes] == ["model"]
    unnamed = evaluate("pack", pack(ANSWERS, generators=("",)), [])
    assert [votes.generator for votes in unnamed.votes] == ["unnamed generator"]


def test_seeds_are_put_together_and_the_judge_without_search_stands_apart() -> None:
    judged = [
        Judged("judge", 0, ORACLE),
        Judged("judge, seed 1", 1, FOOLED),
        Judged("judge without search", None, FOOLED),
    ]
    report = evaluate("pack", PLAIN, judged)
    scorers = list(dict.fromkeys(row.scorer for row in report.verification))
    assert scorers[:3] == ["judge", "vote of 2 seeds", "judge without search"]
    assert verification(report, "judge", "model")["accuracy"] == 1.0
    assert verification(report, "judge without search", "model")["accuracy"] == pytest.approx(7 / 11)
    assert report.agreement is not None
    assert report.agreement.verdicts.value == pytest.approx(12 / 16)
    assert [of.scorer for of in report.conduct] == ["judge", "judge, seed 1", "judge without search"]
    assert selection(report, "hard", "vote of 2 seeds", "model")[4] is not None


def test_calibrated_p_stands_beside_p() -> None:
    """The same order and verdicts, so only what p means is measured again: on questions that the calibration does not know."""
    said = [one.model_copy(update={"p_calibrated": 0.8 if one.verdict else 0.4}) for one in ORACLE]
    judged = [Judged("judge", 0, said), Judged("judge, seed 1", 1, said), Judged("judge without search", None, ORACLE)]
    report = evaluate("pack", PLAIN, judged)
    (row,) = [row for row in report.verification if row.scorer.endswith("calibrated")]
    assert (row.scorer, row.traces) == ("judge, calibrated", 11)
    right, wrong = 5 / 11, 6 / 11
    assert {name: found.value for name, found in row.figures.items()} == {
        "Brier": pytest.approx(right * 0.2**2 + wrong * 0.4**2),
        "ECE": pytest.approx(right * 0.2 + wrong * 0.4),
        "smooth ECE": pytest.approx(row.figures["smooth ECE"].value),
    }
    (curves,) = [one for one in report.curves if one.scorer == "judge, calibrated"]
    assert [(bar.p, bar.right, bar.count) for bar in curves.reliability] == [(0.4, 0.0, 6), (0.8, 1.0, 5)]
    assert curves.roc is None
    assert not [row for row in report.selection if row.scorer.endswith("calibrated")]
    assert {example.p_calibrated for example in report.examples if example.verdict == 1} == {0.8}
    knows = [question_digest(one.case.question) for one in PLAIN if one.question_id == "q0"]
    (row,) = [row for row in evaluate("pack", PLAIN, judged, knows).verification if row.scorer.endswith("calibrated")]
    assert row.traces == 7
    all_known = evaluate("pack", PLAIN, judged, [question_digest(one.case.question) for one in PLAIN])
    assert not [row for row in all_known.verification if row.scorer.endswith("calibrated")]


def test_what_was_not_judged_is_left_out_and_counted() -> None:
    some: list[Judgment] = [*ORACLE[:8], *(judgment(one, None) for one in PLAIN[8:12])]
    report = evaluate("pack", PLAIN, [Judged("judge", 0, some)])
    row = next(row for row in report.verification if row.scorer == "judge")
    assert (row.traces, row.right) == (8, 5)
    assert report.conduct[0].missing == 4
    assert [one.trace for one in report.failures] == [f"q2#{i}" for i in range(4)]


def test_of_an_unfinished_run_all_stands_on_what_the_judge_has_come_to() -> None:
    """Two questions and a trace of the third: as if these two were the pack, but for what needs no whole question."""
    judged, half = [Judged("judge", 0, ORACLE[:9])], evaluate("pack", PLAIN[:8], [Judged("judge", 0, ORACLE[:8])])
    report = evaluate("pack", PLAIN, judged)
    assert (report.composition.questions, report.composition.come_to) == (4, 2)
    assert report.votes == half.votes
    assert report.budgets == half.budgets
    blind = ("length", "answer frequency")  # look at the whole pack
    assert [row for row in report.selection if row.scorer not in blind] == [
        row for row in half.selection if row.scorer not in blind
    ]
    assert selection(report, "best-of-n", "judge", "model")[4] == 1.0
    assert selection(report, "majority", generator="model")[4] == 0.75
    assert {row.traces for row in report.verification} == {9}
    assert len(report.curves) > 1
    assert {sum(one.histogram_right) + sum(one.histogram_wrong) for one in report.curves} == {9}


def test_a_variant_that_is_behind_the_judge_chooses_nothing_yet() -> None:
    silent = Judged("judge without search", None, ORACLE[:9])
    report = evaluate("pack", PLAIN, [Judged("judge", 0, ORACLE), Judged("judge, seed 1", 1, FOOLED[:5]), silent])
    assert report.composition.come_to == 4
    assert {row.scorer for row in report.selection if row.strategy == "soft"} == {"judge"}
    traces = {row.scorer: row.traces for row in report.verification}
    assert (traces["judge"], traces["judge without search"]) == (11, 9)
    assert traces["vote of 2 seeds"] == 5  # of fewer it would be another vote
    best = choices_beside(report, "judge without search")["best-of-n, N = 4"]
    assert (best.first, best.second) == (1.0, 1.0)  # on the two questions that both have come to


def test_the_choices_of_the_judge_stand_beside_those_without_search() -> None:
    """On the same questions, so that what makes them hard cancels out; of baselines only the order is compared."""
    report = evaluate("pack", PLAIN, [Judged("judge", 0, ORACLE), Judged("judge without search", None, FOOLED)])
    rows = choices_beside(report, "judge without search")
    assert set(rows) == {"best-of-n, N = 4", "hard, N = 4", "soft, N = 4"}
    assert [(row.first, row.second, row.difference.value) for row in rows.values()] == [(0.5, 0.25, 0.25)] * 3
    assert all(row.p_value is not None and row.difference.low is not None for row in rows.values())
    assert choices_beside(report, "length") == {}


def test_a_run_that_has_come_to_nothing_chooses_nothing() -> None:
    report = evaluate("pack", PLAIN, [Judged("judge", 0, [])])
    assert report.composition.come_to == 0
    assert report.selection == []
    assert report.budgets == []
    assert report.votes[0].majority.value is None


def test_a_judge_that_never_judged_is_no_number() -> None:
    report = evaluate("pack", PLAIN, [Judged("judge", 0, [judgment(one, None) for one in PLAIN])])
    assert verification(report, "judge", "model")["AUROC"] is None
    assert not [row for row in report.selection if row.scorer == "judge"]
    assert PackReport.model_validate_json(report.model_dump_json()) == report


def test_the_adaptive_budget_stands_beside_fixed_numbers(oracle: PackReport) -> None:
    majority, soft = oracle.budgets
    assert (majority.strategy, soft.strategy, soft.scorer) == ("majority", "soft", "judge")
    last = soft.points[-1]
    assert last.threshold is None
    assert last.samples == 4.0
    assert last.accuracy.value == pytest.approx(0.5) == soft.fixed[4].value
    assert soft.points[0].samples < 4.0
    saved = {saving.against: saving.times.value for saving in soft.savings}
    assert any(against.startswith("the majority, N = 4") and (times or 0) >= 1 for against, times in saved.items())


def test_questions_without_a_known_answer_are_left_out_of_selection() -> None:
    unknown = pack([["A", "B"]])
    unknown = [replace(one, label=None, gold=None) for one in unknown]
    report = evaluate("pack", unknown)
    assert report.composition.without_gold == 1
    assert report.votes[0].majority.value is None
    assert report.selection == []
    assert report.budgets == []


def test_labels_that_their_answers_contradict_are_counted() -> None:
    odd = [*PLAIN[:3], replace(PLAIN[3], answer=None), replace(PLAIN[4], label=0)]
    assert evaluate("pack", PLAIN).composition.at_odds == 0
    assert evaluate("pack", odd).composition.at_odds == 2


def test_nothing_to_evaluate() -> None:
    with pytest.raises(ValueError, match="no trace"):
        evaluate("pack", [])


def test_the_order_of_judgments_does_not_matter() -> None:
    first, again = (evaluate("pack", PLAIN, [Judged("judge", 0, found)]) for found in (ORACLE, ORACLE[::-1]))
    assert again.verification == first.verification
    assert again.selection == first.selection
    assert again.budgets == first.budgets


def test_curves_are_short_and_whole() -> None:
    random = np.random.default_rng(0)
    many = pack([["A", "B"]] * 400)
    report = evaluate("pack", many, [Judged("judge", 0, [judgment(one, float(random.random())) for one in many])])
    curve = report.curves[0]
    assert curve.roc is not None
    assert len(curve.roc.x) <= 201
    assert (curve.roc.x[0], curve.roc.y[0], curve.roc.x[-1], curve.roc.y[-1]) == (0, 0, 1, 1)
    assert sum(curve.histogram_right) == sum(curve.histogram_wrong) == 400
    assert sum(one.count for one in curve.reliability) == 800
    assert curve.risk_coverage.x[-1] == 1.0
