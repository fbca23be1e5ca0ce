from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curriculum.gates import Admission, Refusal, Tried, of_length, varied, well_formed


def group(*outcomes: bool | None, form: float = 1.0, tokens: int = 10) -> list[Tried]:
    return [Tried(outcome, form, tokens) for outcome in outcomes]


@pytest.mark.parametrize(
    ("outcomes", "refusal"),
    [
        ([True, False], None),
        ([True, True, True, False, None], None),
        ([True, True], Refusal.EASY),
        ([False, False, None], Refusal.IMPOSSIBLE),
        ([True, None, None], Refusal.UNJUDGED),
        ([False], Refusal.UNJUDGED),
        ([None, None], Refusal.UNJUDGED),
        ([], Refusal.UNJUDGED),
    ],
)
def test_two_judged_rollouts_must_differ(outcomes: Sequence[bool | None], refusal: Refusal | None) -> None:
    assert varied(group(*outcomes)) is refusal


def test_a_shaped_reward_does_not_let_an_all_wrong_group_through() -> None:
    wrong = [Tried(False, 1.0, 10), Tried(False, 0.0, 10), Tried(False, 0.25, 10)]
    admission = Admission([varied])
    assert not admission.admit(wrong, [0.3, 0.0, 0.1])
    assert admission.refused == {Refusal.IMPOSSIBLE: 1}
    assert admission.without_spread == 0


@given(st.lists(st.sampled_from([True, False, None]), max_size=8), st.randoms())
def test_neither_order_nor_failures_matter(outcomes: list[bool | None], random: object) -> None:
    shuffled = list(outcomes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert varied(group(*shuffled)) is varied(group(*outcomes))
    assert varied(group(*outcomes, None, None)) is varied(group(*outcomes))


@pytest.mark.parametrize(("tokens", "refusal"), [(3, Refusal.SHORT), (4, None), (9, None), (10, Refusal.LONG)])
def test_length(tokens: int, refusal: Refusal | None) -> None:
    assert of_length(4, 9)([*group(True, False, tokens=tokens), Tried(None, 0.0, 1000)]) is refusal


def test_form() -> None:
    half = [Tried(True, 0.25, 5), Tried(False, 0.0, 5), Tried(None, 0.0, 5)]
    assert well_formed(0.5)(half) is None
    assert well_formed(0.6)(half) is Refusal.ILL_FORMED
    assert well_formed(0.0)(group(None)) is Refusal.UNJUDGED


def test_counts() -> None:
    admission = Admission([varied, of_length(0, 100)])
    assert admission.metrics()["kept"] == 0
    assert admission.admit(group(True, False), [1.0, 0.0])
    assert not admission.admit(group(True, True), [1.0, 1.0])
    assert not admission.admit(group(False, False), [0.0, 0.0])
    assert not admission.admit(group(True, False, tokens=200), [1.0, 0.0])
    shares = admission.metrics()
    assert (shares["kept"], shares["easy"], shares["impossible"], shares["long"]) == (0.25, 0.25, 0.25, 0.25)
    assert shares["frac_reward_zero_std"] == 0.5
    assert sum(value for name, value in shares.items() if name != "frac_reward_zero_std") == 1
