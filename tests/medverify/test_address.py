import pytest

from medverify.address import API_KEY, key_of


def test_the_end_of_a_line_is_no_part_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_of("mv_abc\n") == "mv_abc"
    monkeypatch.setenv(API_KEY, "mv_other\r\n")
    assert key_of(None) == "mv_other"
    monkeypatch.setenv(API_KEY, " ")
    assert key_of(None) is None


@pytest.mark.parametrize("key", ["mv_secret\nX-Evil: 1", "mv_sécret", "mv secret"])
def test_what_is_no_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="characters that no key has") as refused:
        key_of(key)
    assert "cret" not in str(refused.value)
