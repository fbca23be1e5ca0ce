import pytest

from configs import strict_json


def test_what_is_json_is_read() -> None:
    assert strict_json.parse('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert strict_json.parse(b'"\xc3\xa9"') == "é"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000])
def test_every_fault_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_json.parse(data)
