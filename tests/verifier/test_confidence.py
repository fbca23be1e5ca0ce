"""Which tokens spell the labels, and what the verdict position says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_fakes import MergingTokenizer

from verifier.confidence import LabelTokens, label_tokens, read_confidence
from verifier.engines.base import EngineError
from verifier.engines.scripted import ByteTokenizer

PLAIN = LabelTokens(zero=(48,), one=(49,))


def test_a_digit_of_its_own() -> None:
    assert label_tokens(ByteTokenizer()) == PLAIN


def test_a_digit_with_white_space_counts_and_one_with_a_bracket_does_not() -> None:
    found = label_tokens(MergingTokenizer(" 1", "\n0", ">1"))
    assert found == LabelTokens(zero=(48, 301), one=(49, 300))
    assert found.watch == (48, 301, 49, 300)


def test_the_label_of_a_token() -> None:
    assert [PLAIN.label(token) for token in (48, 49, 50)] == [0, 1, None]


class Wordy(ByteTokenizer):
    """Has no token for a single digit."""

    def encode(self, text: str) -> list[int]:
        return [ord(character) + 1000 for character in text]

    def decode(self, ids: object) -> str:
        return "number"


def test_a_tokenizer_without_digits_is_refused() -> None:
    with pytest.raises(EngineError, match="no single token for the labels"):
        label_tokens(Wordy())


def test_p_correct_and_mass() -> None:
    read = read_confidence([math.log(0.1), math.log(0.3)], PLAIN)
    assert read is not None
    assert read.p_correct == pytest.approx(0.75)
    assert read.label_mass == pytest.approx(0.4)


def test_spellings_of_a_label_add_up() -> None:
    labels = LabelTokens(zero=(1, 2), one=(3,))
    read = read_confidence([math.log(0.1), math.log(0.2), math.log(0.1)], labels)
    assert read is not None
    assert read.p_correct == pytest.approx(0.25)
    assert read.label_mass == pytest.approx(0.4)


@pytest.mark.parametrize("watched", [[-math.inf, math.log(0.2)], [math.log(0.2), -math.inf]])
def test_a_label_that_was_not_reported_is_unknown_not_improbable(watched: list[float]) -> None:
    assert read_confidence(watched, PLAIN) is None


def test_a_label_so_improbable_that_it_vanishes_is_still_known() -> None:
    read = read_confidence([-5000.0, math.log(0.2)], PLAIN)
    assert read is not None
    assert read.p_correct == 1.0
    assert read.label_mass == pytest.approx(0.2)


def test_nothing_reported_is_nothing_read() -> None:
    assert read_confidence([-math.inf, -math.inf], PLAIN) is None


@pytest.mark.parametrize("watched", [[math.nan, -1.0], [-1.0, math.nan]])
def test_nan_is_an_error(watched: list[float]) -> None:
    with pytest.raises(EngineError, match="NaN"):
        read_confidence(watched, PLAIN)


@given(st.floats(0, 1), st.floats(0, 1))
def test_always_a_probability_or_nothing(zero: float, one: float) -> None:
    read = read_confidence([math.log(p) if p else -math.inf for p in (zero, one)], PLAIN)
    assert (read is None) == (zero == 0 or one == 0)
    if read is not None:
        assert 0 <= read.p_correct <= 1
        assert 0 < read.label_mass <= 1
