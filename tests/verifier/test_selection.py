"""What several judged traces of a question come to, and that their order does not matter."""

import itertools
import random
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.selection import Strategy, combine_judgments, select, tally, votes

MAJORITY, BEST, HARD, SOFT = Strategy
Row = tuple[str | None, float | None, int | None]

chances = st.one_of(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 1.0]), st.floats(0, 1))
judged = st.tuples(st.sampled_from(["A", "B", "C", None]), chances, st.integers(0, 1))
failed = st.tuples(st.sampled_from(["A", "B", None]), st.none(), st.none())
rows = st.lists(st.one_of(judged, failed), max_size=12)
strategies = st.sampled_from(list(Strategy))


def columns(traces: list[Row]) -> tuple[list[str | None], list[float | None], list[int | None]]:
    return [row[0] for row in traces], [row[1] for row in traces], [row[2] for row in traces]


@pytest.mark.parametrize(
    ("strategy", "traces", "weights", "chances", "fell_back"),
    [
        (MAJORITY, "A.9+ A.9+ B.1-", {"A": 2 / 3, "B": 1 / 3}, {"A": 1, "B": 0}, False),
        (MAJORITY, "B.1- A.9+", {"A": 1 / 2, "B": 1 / 2}, {"A": 1 / 2, "B": 1 / 2}, False),
        (MAJORITY, "?.9+ ?.9+ B.1-", {"B": 1}, {"B": 1}, False),  # what cannot be read chooses nothing
        (MAJORITY, "A B B", {"B": 2 / 3, "A": 1 / 3}, {"B": 1, "A": 0}, False),  # needs no judge
        (BEST, "A.5+ A.5+ B.9-", {"B": 1, "A": 0}, {"B": 1, "A": 0}, False),
        (BEST, "A.9+ A.9+ B.9-", {"A": 2 / 3, "B": 1 / 3}, {"A": 2 / 3, "B": 1 / 3}, False),  # of three tied traces
        (BEST, "?.9+ A.2- B.1-", {"A": 1, "B": 0}, {"A": 1, "B": 0}, False),
        (BEST, "A B.0-", {"B": 1, "A": 0}, {"B": 1, "A": 0}, False),  # unjudged is behind the worst judged
        (BEST, "A A B ?.9+", {"A": 2 / 3, "B": 1 / 3}, {"A": 2 / 3, "B": 1 / 3}, True),
        (HARD, "A.9- A.9- B.1+", {"B": 1, "A": 0}, {"B": 1, "A": 0}, False),
        (HARD, "A.9- A.9- B.1-", {"A": 2 / 3, "B": 1 / 3}, {"A": 1, "B": 0}, True),
        (HARD, "A.9- A B ?.9+", {"A": 2 / 3, "B": 1 / 3}, {"A": 1, "B": 0}, True),
        (HARD, "A B.1+ A", {"B": 1, "A": 0}, {"B": 1, "A": 0}, False),
        (SOFT, "A.2- A.2- B.6+", {"B": 0.6, "A": 0.4}, {"B": 1, "A": 0}, False),
        (SOFT, "A.1- A.2- B.3+", {"A": 0.5, "B": 0.5}, {"A": 0.5, "B": 0.5}, False),  # 0.1 + 0.2 is 0.3
        (SOFT, "A A B.1-", {"B": 1, "A": 0}, {"B": 1, "A": 0}, False),
        (SOFT, "A A B ?.9+", {"A": 2 / 3, "B": 1 / 3}, {"A": 1, "B": 0}, True),
        (SOFT, "A.0- A.0- B", {"A": 2 / 3, "B": 1 / 3}, {"A": 1, "B": 0}, True),  # no vote has weight
        *((strategy, text, {}, {}, False) for strategy in (MAJORITY, HARD, SOFT) for text in ("", "? ?.9+")),
    ],
)
def test_by_hand(
    strategy: Strategy, traces: str, weights: dict[str, float], chances: dict[str, float], fell_back: bool
) -> None:
    read: list[Row] = [
        (
            None if word[0] == "?" else word[0],
            *((float(word[1:-1]), int(word[-1] == "+")) if word[1:] else (None, None)),
        )
        for word in traces.split()
    ]
    found = select(strategy, *columns(read))
    assert found.weights == pytest.approx(weights)
    assert found.chances == pytest.approx(chances)
    assert list(found.weights) == list(weights)  # the heaviest first
    assert found.fell_back == fell_back
    assert votes(strategy, *columns(read)) == found.weights


@given(strategies, rows, st.randoms())
def test_the_order_of_traces_never_matters(strategy: Strategy, traces: list[Row], shuffle: random.Random) -> None:
    mixed = shuffle.sample(traces, len(traces))
    first, second = select(strategy, *columns(traces)), select(strategy, *columns(mixed))
    assert (first, list(first.weights)) == (second, list(second.weights))  # to the last bit


@given(strategies, rows)
def test_a_share_for_each_readable_answer(strategy: Strategy, traces: list[Row]) -> None:
    found = select(strategy, *columns(traces))
    for shares in (found.weights, found.chances):
        assert set(shares) == {answer for answer, _, _ in traces if answer is not None}
        assert sum(shares.values()) == pytest.approx(1 if shares else 0)
    if strategy is not Strategy.BEST:
        best = max(found.weights.values(), default=0)
        assert all((chance > 0) == (found.weights[answer] == best) for answer, chance in found.chances.items())


@given(rows)
def test_votes_as_they_stand_are_exact_sums_and_do_not_fall_back(traces: list[Row]) -> None:
    found = tally(SOFT, *columns(traces))
    for answer, total in found.items():
        exact = sum(Fraction(p) for given, p, _ in traces if given == answer and p is not None)
        assert abs(total - exact) <= len(traces) * 2.0**-41
    passed = tally(HARD, *columns(traces))
    assert passed == {a: sum(v == 1 for b, _, v in traces if b == a) for a in found}


def test_best_of_n_counts_no_votes() -> None:
    with pytest.raises(ValueError, match="best-of-n counts no votes"):
        tally(BEST, ["A"], [0.5], [1])


@pytest.mark.parametrize(
    ("answers", "p", "verdicts", "message"),
    [
        (["A"], [0.5, 0.5], [1, 1], "1 answers, 2 probabilities and 2 verdicts"),
        (["A"], [0.5], [], "1 answers, 1 probabilities and 0 verdicts"),
        (["A"], [float("nan")], [1], "a number from 0 to 1"),
        (["A"], [1.01], [1], "a number from 0 to 1"),
        (["A"], [-0.01], [1], "a number from 0 to 1"),
        (["A"], [0.5], [-1], "0 or 1"),
        (["A"], [0.5], [2], "0 or 1"),
    ],
)
def test_what_is_no_judgment_is_refused(
    answers: list[str | None], p: list[float | None], verdicts: list[int | None], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        select(MAJORITY, answers, p, verdicts)


@pytest.mark.parametrize(
    ("p", "verdicts", "expected"),
    [
        ([0.2], [1], (0.2, 1)),
        ([0.9, 0.6, 0.3], [1, 1, 0], (0.6, 1)),
        ([0.1, 0.1, 1.0], [1, 1, 0], (0.4, 1)),  # the majority, whatever the mean
        ([0.9, 0.3, None], [1, 0, None], (0.6, 1)),  # a tie goes with the mean
        ([0.7, 0.1], [1, 0], (0.4, 0)),
        ([0.75, 0.25], [1, 0], (0.5, 0)),
        ([None, 0.3, None], [None, 0, None], (0.3, 0)),
        ([None, None], [None, None], (None, None)),
        ([], [], (None, None)),
    ],
)
def test_several_judgments_of_a_trace(
    p: list[float | None], verdicts: list[int | None], expected: tuple[float | None, int | None]
) -> None:
    for order in itertools.permutations(range(len(p))):
        found = combine_judgments([p[place] for place in order], [verdicts[place] for place in order])
        assert found == (pytest.approx(expected[0]), expected[1])


def test_the_mean_of_judgments_is_the_same_in_any_order() -> None:
    p = [0.1, 0.7, 0.3, 1e-9, 0.123456789]
    found = {combine_judgments(list(order), [1] * 5) for order in itertools.permutations(p)}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("p", "verdicts", "message"),
    [
        ([0.5], [None], "both a probability and a verdict"),
        ([None], [1], "both a probability and a verdict"),
        ([0.5, 0.5], [1], "2 probabilities and 1 verdicts"),
        ([1.5], [1], "from 0 to 1"),
    ],
)
def test_half_a_judgment_is_refused(p: list[float | None], verdicts: list[int | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        combine_judgments(p, verdicts)


def test_the_base_install_can_select_and_spend() -> None:
    """It has no numpy."""
    program = "import sys; sys.modules['numpy'] = None; import verifier.selection, verifier.budget"
    subprocess.run([sys.executable, "-c", program], check=True)
