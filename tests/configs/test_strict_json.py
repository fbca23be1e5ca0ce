import json

import pytest

from configs import strict_json
from configs.strict_json import RepeatedKeyError, parse, parse_unique


def test_what_is_json_is_read() -> None:
    assert strict_json.parse('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert strict_json.parse(b'"\xc3\xa9"') == "é"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000])
def test_every_fault_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_json.parse(data)
    with pytest.raises(ValueError, match=r"."):
        strict_json.parse_unique(data)


@pytest.mark.parametrize(
    ("text", "key"),
    [('{"a": 1, "a": 1}', "a"), ('[{"b": {"c": 1, "d": 2, "c": 3}}]', "c"), ('{"\\ud800": 1, "\\ud800": 2}', "?")],
)
def test_a_key_that_is_there_twice_is_named(text: str, key: str) -> None:
    with pytest.raises(RepeatedKeyError, match="twice") as error:
        parse_unique(text)
    assert error.value.key == key
    parse(text)  # files of others may have it so


def test_an_object_has_a_bounded_number_of_keys() -> None:
    value = {str(number): number for number in range(strict_json.MOST_KEYS)}
    assert parse_unique(json.dumps(value)) == value
    with pytest.raises(ValueError, match="more than"):
        parse_unique(json.dumps({**value, "more": 1}))
    parse(json.dumps({**value, "more": 1}))


def test_equal_keys_in_different_objects_are_no_repetition() -> None:
    value = [{"a": {"a": 1}}, {"a": 2}]
    assert parse_unique(json.dumps(value)) == value
