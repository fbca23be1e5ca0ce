import pytest
from hypothesis import given
from hypothesis import strategies as st

from curriculum.faults import Fault
from curriculum.swap_rules import KINDS, OPPOSITES, spots


def found(sentence: str) -> set[tuple[str, str, str]]:
    return {(spot.fault.value, spot.group, spot.says) for spot in spots(sentence)}


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Give 5 mg for 3 days.", {("number", "number mg", "5"), ("number", "number day", "3")}),
        ("About 40% or 2.5 percent.", {("number", "number %", "40"), ("number", "number %", "2.5")}),
        ("In 2015, 3-5 years and 1,200 mg were seen, and type 2.", set()),
        ("The kidneys filter.", {("entity", "organs", "kidneys")}),
        ("An adenoma and a carcinoma.", {("entity", "-oma", "adenoma"), ("entity", "-oma a", "carcinoma")}),
        ("A case of trauma.", set()),
        ("Liver and well-liver.", set()),
        ("It raises pressure.", {("direction", "raises/reduces", "raises")}),
        ("It is red.", {("negation", "is/is not", "is")}),
        ("It is not red.", {("negation", "is/is not", "is not")}),
        ("It cannot be.", {("negation", "can/cannot", "cannot")}),
        ("It is not only red.", set()),
        ("It can not be.", set()),
    ],
)
def test_what_is_found(sentence: str, expected: set[tuple[str, str, str]]) -> None:
    assert found(sentence) == expected


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from(["is", "not", "5", "mg", "liver", "a", "high", "-", "may"])).map(" ".join)
)
def test_a_spot_is_where_it_says(sentence: str) -> None:
    for spot in spots(sentence):
        assert sentence[spot.start : spot.end] == spot.says
        assert spot.fault in Fault


def test_no_word_is_in_two_pairs_or_two_kinds() -> None:
    for groups in (OPPOSITES, KINDS.values()):
        members = [word for group in groups for word in group]
        assert len(members) == len(set(members))
        assert all(spots(word) for word in members)
