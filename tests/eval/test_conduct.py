import numpy as np
import pytest
from pack_fakes import judgment, pack, passage, search

from eval.columns import Columns, join
from eval.evaluation.conduct import agreement, conduct, cost, failures

CASES = pack([["A", "B", "A", "C"]])
JUDGED = [
    judgment(CASES[0], 0.9, [search("warfarin", passage("a"), passage("b", 2)), search(" Warfarin ", omitted=3)]),
    judgment(CASES[1], 0.2, [search("heparin", passage("a"), passage(" ", 2), passage("c", 4))]),
    judgment(CASES[2], None),
]


def test_endings_and_searches() -> None:
    found = conduct("judge", JUDGED, len(CASES), [("c", "a")])
    assert found.judgments == 3
    assert found.missing == 1
    assert found.statuses == {"scored": 2, "timeout": 1}
    assert found.stop_reasons == {"answered": 2, "deadline": 1}
    assert found.forced == 1.0
    assert found.label_mass == 0.5
    assert found.turns == 2.0
    assert found.searches == 3
    assert found.searches_per_trace == 1.0
    assert found.never_searched == pytest.approx(1 / 3)
    assert found.empty == pytest.approx(1 / 3)
    assert found.repeated == pytest.approx(1 / 3)  # " Warfarin " is what was asked before
    assert found.passages == 5
    assert found.passages_per_search == pytest.approx(5 / 3)
    assert found.omitted == 3
    assert found.well_formed == pytest.approx(3 / 5)  # one has no id, one another's rank
    assert found.resolved == pytest.approx(3 / 5)  # "a" was shown twice


def test_what_nobody_looked_up_is_not_called_resolved() -> None:
    assert conduct("judge", JUDGED, 4).resolved is None


def test_no_judgments_at_all() -> None:
    found = conduct("judge", [], 4, [])
    assert found.missing == 4
    assert found.searches == 0
    assert found.forced is found.turns is found.empty is found.resolved is found.well_formed is None
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
    assert found.verdicts == pytest.approx((1 + 1 + 1 / 3) / 3)
    assert found.unanimous == pytest.approx(2 / 3)
    chance = (4 / 9) ** 2 + (5 / 9) ** 2
    assert found.kappa == pytest.approx((7 / 9 - chance) / (1 - chance))
    assert found.spread == pytest.approx(
        np.mean([np.std([0.9, 0.7, 0.8]), np.std([0.1, 0.1, 0.4]), np.std([0.9, 0.1, 0.1])])
    )


def test_agreement_needs_two_seeds_and_a_trace() -> None:
    assert agreement(by_seed([0.9] * 4)) is None
    found = agreement(by_seed([None] * 4, [0.9] * 4))
    assert found is not None
    assert found.traces == 0
    assert found.kappa is None


def test_one_verdict_for_everything_has_no_kappa() -> None:
    found = agreement(by_seed([0.9] * 4, [0.8] * 4))
    assert found is not None
    assert found.verdicts == 1.0
    assert found.kappa is None
