import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrieval.normalize import bare, normalized

# Plain text never shows the rules at work, so what they act on is drawn often.
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(
            " \t\n\r\v\f\x00\x1c\x85\x96\u00a0\u00ad\u2000\u200b\u2028\u2060\u3000\ufeffA\u0301\u030a\u212b"
        ),
    )
)


@given(texts)
def test_twice_is_once(text: str) -> None:
    once = normalized(text)
    assert normalized(once) == once


@given(texts)
@example("0\t0\x850")
def test_what_comes_out(text: str) -> None:
    found = normalized(text)
    assert unicodedata.is_normalized("NFC", found)
    assert found == found.strip()
    assert not any(
        unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in found if character not in "\n\t"
    )
    assert not any(unicodedata.category(character) == "Zs" and character != " " for character in found)
    assert "\t" not in found or "\n" in found  # a tab may be the level of a list, where there are lines
    assert "\n\n\n" not in found
    assert " \n" not in found


@given(texts)
def test_everything_that_is_seen_stays_in_its_order(text: str) -> None:
    def seen(text: str) -> str:
        invisible = "\u00ad\u200b\u2060\ufeff"
        kept = (c for c in text if not c.isspace() and unicodedata.category(c) != "Cc" and c not in invisible)
        return unicodedata.normalize("NFC", "".join(kept))

    assert seen(normalized(text)) == seen(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10⁶ H₂O β-blocker 5 µg ﬁne ½ α≥β 3–4", "10⁶ H₂O β-blocker 5 µg ﬁne ½ α≥β 3–4"),
        ("cafe\u0301", "café"),
        ("10\x9620 mg\x00daily", "10 20 mg daily"),  # one number never becomes another
        ("5\u00a0mg\u2009twice", "5 mg twice"),
        ("hyper\u00adtension\u200b\ufeff", "hypertension"),
        ("a  b\t c ", "a b c"),
        ("one\r\ntwo\u2028three\r\n\r\n \n\nfour  ", "one\ntwo\nthree\n\nfour"),
        ("- a\n    - b  \n\n|   |\n", "- a\n    - b\n\n|   |"),  # levels and drawings
        (" \u00a0\n", ""),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert normalized(text) == expected


def test_bare() -> None:
    assert bare("a\n\n  b  c") == "a b c"
