"""Curves against counting all subsets by definition; where subsets are drawn, against their own noise."""

import dataclasses
import math
import random
from pathlib import Path

import numpy as np
import pytest
from candidate_fakes import Asked, candidates_of, expected, questions
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.candidates import Candidates, gather
from eval.closed_forms import any_right_at, mean_accuracy
from eval.scaling import accuracy_at, scaling
from verifier.packs import read_pack
from verifier.selection import Strategy

VOTES = (Strategy.MAJORITY, Strategy.HARD, Strategy.SOFT)


def made_up(questions: int, traces: int, seed: int = 0) -> Candidates:
    generator = np.random.default_rng(seed)
    shape = questions, traces
    p_QM = generator.integers(0, 9, size=shape) / 8
    return Candidates(
        generator.integers(-1, 3, size=shape), np.ones(shape, dtype=np.bool_), p_QM, (p_QM > 0.6).astype(np.int64),
        generator.integers(0, 3, size=questions),
    )  # fmt: skip


@settings(max_examples=40)
@given(questions(most=6), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_all_subsets_are_counted_where_they_are_few(asked: list[Asked], sizes: list[int]) -> None:
    curves = scaling(candidates_of(asked), sizes, draws=20)  # 6 over 3
    for strategy, accuracy_NQ in curves.items():
        by_definition = [[float(expected(strategy, one, n)) for one in asked] for n in sizes]
        assert accuracy_NQ == pytest.approx(np.array(by_definition), abs=1e-12)


@settings(max_examples=40)
@given(questions(most=6, least=6), st.integers(0, 99))
def test_one_trace_and_all_traces_are_exact_with_a_single_draw(asked: list[Asked], seed: int) -> None:
    for strategy, accuracy_NQ in scaling(candidates_of(asked), [1, 5, 6], draws=1, seed=seed).items():
        by_definition = [[float(expected(strategy, one, n)) for one in asked] for n in (1, 5, 6)]
        assert accuracy_NQ == pytest.approx(np.array(by_definition), abs=1e-12)


@pytest.mark.parametrize("strategy", VOTES)
def test_draws_differ_from_the_truth_by_no_more_than_their_noise(strategy: Strategy) -> None:
    batch, draws = made_up(300, 12), 60
    truth = accuracy_at(strategy, batch, 5, draws=math.comb(12, 5))
    drawn = accuracy_at(strategy, batch, 5, draws=draws)
    assert not np.array_equal(drawn, truth)
    largest_variance = truth * (1 - truth) / draws  # of a mean of numbers between 0 and 1
    assert abs((drawn - truth).sum()) < 3 * np.sqrt(largest_variance.sum())
    assert np.mean((drawn - truth) ** 2) < 1.3 * largest_variance.mean()


@pytest.mark.parametrize("strategy", VOTES)
def test_subsets_are_drawn_without_replacement(strategy: Strategy) -> None:
    """With it, three right traces of four would not always win over the one that is left out."""
    batch = made_up(1, 6)
    batch = dataclasses.replace(
        batch, answers_QM=np.array([[0, 0, 0, 0, 1, 1]]), gold_Q=np.zeros(1, np.int64), p_QM=np.ones((1, 6)),
        verdicts_QM=np.ones((1, 6), np.int64),
    )  # fmt: skip
    assert accuracy_at(strategy, batch, 4, draws=7)[0] >= 0.5  # at worst two against two
    assert accuracy_at(strategy, batch, 5, draws=7)[0] == 1


@settings(max_examples=40)
@given(questions(most=9, least=7), st.randoms())
def test_the_order_of_traces_does_not_matter_even_to_draws(asked: list[Asked], shuffle: random.Random) -> None:
    mixed = [Asked(one.gold, shuffle.sample(list(one.traces), len(one.traces))) for one in asked]
    # An answer's code depends on the set of answers alone, so that the same traces are the same numbers.
    first, second = (scaling(candidates_of(rows), [2, 3, 4], draws=5) for rows in (asked, mixed))
    for strategy in VOTES:
        assert np.array_equal(first[strategy], second[strategy])
    assert first[Strategy.BEST] == pytest.approx(second[Strategy.BEST])


def test_what_comes_out_for_an_n_does_not_depend_on_the_other_n_or_strategies() -> None:
    batch = made_up(30, 12)
    together = scaling(batch, [8, 4, 2, 6, 4], draws=10, seed=3)
    for strategy in Strategy:
        alone = np.array([accuracy_at(strategy, batch, n, draws=10, seed=3) for n in (8, 4, 2, 6, 4)])
        assert np.array_equal(together[strategy], alone)
    assert not np.array_equal(together[Strategy.SOFT], scaling(batch, [8, 4, 2, 6, 4], draws=10, seed=4)[Strategy.SOFT])


def test_many_questions_are_counted_in_blocks_as_few_are() -> None:
    few = made_up(3, 8)
    many = Candidates(
        *(np.tile(part, (4000, 1)) for part in (few.answers_QM, few.present_QM, few.p_QM, few.verdicts_QM)),
        np.tile(few.gold_Q, 4000),
    )
    for strategy, accuracy_NQ in scaling(many, [3], draws=56).items():
        assert np.array_equal(accuracy_NQ, np.tile(accuracy_at(strategy, few, 3, draws=56), 4000)[None])


def test_questions_with_fewer_traces_give_all_of_them() -> None:
    batch = made_up(2, 6)
    batch.present_QM[1, 2:] = False
    for strategy in Strategy:
        at = {n: accuracy_at(strategy, batch, n)[1] for n in (2, 4, 6)}
        assert at[2] == at[4] == at[6]


def test_questions_without_traces_are_answered_wrongly() -> None:
    batch = made_up(2, 6)
    batch.present_QM[1] = False
    assert {float(accuracy_at(strategy, batch, 3)[1]) for strategy in Strategy} == {0.0}


@pytest.mark.parametrize(("sizes", "draws"), [([1, 0], 5), ([-1], 5), ([2], 0)])
def test_nothing_drawn_is_refused(sizes: list[int], draws: int) -> None:
    with pytest.raises(ValueError, match="at least one trace and one draw"):
        scaling(made_up(2, 6), sizes, draws=draws)


@pytest.mark.parametrize(
    ("name", "mean", "majority", "anything"),
    [
        ("usmle_dev100_n29", 0.410, 0.449, 0.929),  # 44.5 of 99 is .44949; the data's README has .450, rounded twice
        ("medmcqa_dev1000_n9", 0.493, 0.596, 0.926),
        ("pubmedqa_other500_ctx", 0.727, 0.788, 0.892),
    ],
)
def test_the_votes_of_the_real_packs(
    repository: Path, name: str, mean: float, majority: float, anything: float
) -> None:
    prefix = repository / ".." / "shared" / "data" / "packs" / name
    if not Path(f"{prefix}.traces.jsonl.gz").exists():
        pytest.skip("the packs in ../shared/data are not on this machine")
    rows = read_pack(prefix)
    nothing = np.full(len(rows), np.nan), np.full(len(rows), -1)
    found = gather([r.question_id for r in rows], [r.answer for r in rows], [r.gold for r in rows], *nothing)
    batch, most = found.candidates, found.rows_QM.shape[1]
    # By the labels: some traces are labelled right whose answer nobody could read, and a vote cannot use those.
    right_QM = found.spread(np.array([row.label or 0.0 for row in rows])) == 1
    assert round(float(right_QM.sum() / batch.present_QM.sum()), 3) == mean
    assert round(float(any_right_at(right_QM, batch.counts, most).mean()), 3) == anything
    for strategy in VOTES:  # nothing is judged, so all fall back on the majority
        assert round(float(accuracy_at(strategy, batch, most).mean()), 3) == majority
    by_answers = mean_accuracy(batch.right, batch.counts)
    assert accuracy_at(Strategy.MAJORITY, batch, 1) == pytest.approx(by_answers)
