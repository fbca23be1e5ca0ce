import numpy as np
import pytest
from pack_fakes import judgment, pack, passage, search

from eval.columns import Columns, join
from eval.evaluation.conduct import agreement, conduct, cost, failures
from eval.evaluation.estimates import figure
from eval.metrics import bootstrap, fleiss_kappa
from eval.report.schema import Figure

CASES = pack([["A", "B", "A", "C"]])
QUESTIONS = {one.case.id: one.question_id for one in CASES}
JUDGED = [
    judgment(CASES[0], 0.9, [search("warfarin", passage("a"), passage("b", 2)), search(" Warfarin ", omitted=3)]),
    judgment(CASES[1], 0.2, [search("heparin", passage("a"), passage(" ", 2), passage("c", 4))]),
    judgment(CASES[2], None),
]


def test_endings_and_searches() -> None:
    found = conduct("judge", JUDGED, QUESTIONS, [("c", "a")])
    assert found.judgments == 3
    assert found.missing == 1
    assert found.statuses == {"scored": 2, "timeout": 1}
    assert found.stop_reasons == {"answered": 2, "deadline": 1}
    assert found.forced.value == 1.0
    assert found.label_mass.value == 0.5
    assert found.turns.value == 2.0
    assert found.searches == 3
    assert found.searches_per_trace.value == 1.0
    assert found.never_searched.value == pytest.approx(1 / 3)
    assert found.empty.value == pytest.approx(1 / 3)
    assert found.repeated.value == pytest.approx(1 / 3)  # " Warfarin " is what was asked before
    assert found.passages == 5
    assert found.passages_per_search.value == pytest.approx(5 / 3)
    assert found.omitted == 3
    assert found.well_formed.value == pytest.approx(3 / 5)  # one has no id, one another's rank
    assert found.resolved is not None
    assert found.resolved.value == pytest.approx(3 / 5)  # "a" was shown twice


def test_what_nobody_looked_up_is_not_called_resolved() -> None:
    assert conduct("judge", JUDGED, QUESTIONS).resolved is None


def test_no_judgments_at_all() -> None:
    found = conduct("judge", [], QUESTIONS, [])
    assert found.missing == 4
    assert found.searches == 0
    undefined = (found.forced, found.label_mass, found.turns, found.empty, found.resolved, found.well_formed)
    assert undefined == (Figure(value=None),) * 6
    assert cost("judge", [], 3.0) is None


def test_cost_is_a_mean_over_what_was_tried() -> None:
    found = cost("judge", JUDGED, 2.5)
    assert found is not None
    assert (found.prompt_tokens, found.policy_tokens, found.environment_tokens) == (100, 20, 30)
    assert (found.prefilled_tokens, found.cached_tokens) == (130, 400)
    assert found.searches == 1.0
    assert found.seconds == 2.5


def test_failures_are_listed_with_their_reason() -> None:
    (found,) = failures("judge", JUDGED)
    assert (found.trace, found.status, found.stop_reason) == ("q0#2", "timeout", "deadline")
    assert found.detail == "no verdict within 600 s"


def by_seed(*rows: list[float | None]) -> dict[int, Columns]:
    return {
        seed: join(CASES, [judgment(one, p) for one, p in zip(CASES, row, strict=True)])
        for seed, row in enumerate(rows)
    }


def test_agreement_over_seeds() -> None:
    found = agreement(by_seed([0.9, 0.1, 0.9, 0.8], [0.7, 0.1, 0.1, 0.6], [0.8, 0.4, 0.1, None]))
    assert found is not None
    assert found.seeds == [0, 1, 2]
    assert found.traces == 3  # the fourth was not judged with every seed
    assert found.verdicts.value == pytest.approx((1 + 1 + 1 / 3) / 3)
    assert found.unanimous.value == pytest.approx(2 / 3)
    chance = (4 / 9) ** 2 + (5 / 9) ** 2
    assert found.kappa.value == pytest.approx((7 / 9 - chance) / (1 - chance))
    assert found.spread.value == pytest.approx(
        np.mean([np.std([0.9, 0.7, 0.8]), np.std([0.1, 0.1, 0.4]), np.std([0.9, 0.1, 0.1])])
    )


def test_agreement_needs_two_seeds_and_a_trace() -> None:
    assert agreement(by_seed([0.9] * 4)) is None
    found = agreement(by_seed([None] * 4, [0.9] * 4))
    assert found is not None
    assert found.traces == 0
    assert found.kappa.value is None


def test_one_verdict_for_everything_has_no_kappa() -> None:
    found = agreement(by_seed([0.9] * 4, [0.8] * 4))
    assert found is not None
    assert found.verdicts.value == 1.0
    assert found.kappa.value is None


MANY = pack([["A", "B", "A"]] * 30)
OF_MANY = {one.case.id: one.question_id for one in MANY}


def test_figures_of_searches_have_intervals_that_draw_whole_questions() -> None:
    """What is the same for all traces of a question is known from 30 questions, not from 90 traces."""
    silent = [judgment(one, 0.9, [] if int(one.question_id[1:]) < 12 else [search("a", passage())]) for one in MANY]
    found = conduct("judge", silent, OF_MANY, [])
    never = found.never_searched
    assert never.value == pytest.approx(12 / 30)
    assert never.low is not None
    assert never.high is not None
    spread = (never.high - never.low) / 2
    assert spread == pytest.approx(2.045 * np.sqrt(0.4 * 0.6 / 29), rel=0.15)  # a share of 30 draws
    assert found.searches_per_trace.high == pytest.approx(1 - never.low)
    assert found.resolved == found.well_formed == Figure(value=1.0, low=1.0, high=1.0)


def test_agreement_has_intervals_that_draw_whole_questions() -> None:
    first = [judgment(one, 0.9 if row % 2 else 0.1) for row, one in enumerate(MANY)]
    again = [
        judgment(one, said.p_correct if int(one.question_id[1:]) % 3 else 1 - (said.p_correct or 0))
        for one, said in zip(MANY, first, strict=True)
    ]
    by = {0: join(MANY, first), 1: join(MANY, again)}
    found = agreement(by)
    assert found is not None
    verdicts = np.stack([columns.verdicts for columns in by.values()], axis=1)
    assert found.kappa == figure(bootstrap(lambda weights: fleiss_kappa(verdicts, weights), by[0].questions))
    assert found.verdicts.value == pytest.approx(2 / 3)
    for one in (found.verdicts, found.unanimous, found.kappa, found.spread):
        assert one.value is not None
        assert one.low is not None
        assert one.high is not None
        assert one.low < one.value < one.high
