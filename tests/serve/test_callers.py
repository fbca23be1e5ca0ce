import logging
from pathlib import Path
from typing import Literal

import pytest

from serve.callers import ANONYMOUS, Caller, Door, OpenToAllError, check_start, is_loopback
from serve.errors import ServiceError
from serve.keys import FILE, KeyStore, Scope

JUDGE = frozenset({Scope.JUDGE})
Rule = Literal["auto", "required", "off"]


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / FILE)


def refused(door: Door, token: str | None, status: int) -> ServiceError:
    with pytest.raises(ServiceError) as error:
        door.admit(token, JUDGE)
    assert error.value.status == status
    return error.value


@pytest.mark.parametrize(
    ("rule", "reachable", "asked"),
    [
        ("auto", False, False),
        ("auto", True, True),
        ("required", False, True),
        ("required", True, True),
        ("off", False, False),
        ("off", True, False),
    ],
)
def test_whether_a_key_is_needed_before_one_was_made(keys: KeyStore, rule: Rule, reachable: bool, asked: bool) -> None:
    door = Door(keys, rule, reachable=reachable)
    if asked:
        refused(door, None, 401)
        refused(door, "mv_anything", 401)
    else:
        assert door.admit(None, JUDGE) == Caller(ANONYMOUS)
        assert door.admit("mv_anything", JUDGE).sees_all


def test_the_first_key_closes_the_door_and_nothing_opens_it_again(keys: KeyStore, tmp_path: Path) -> None:
    door = Door(keys, "auto", reachable=False)
    assert door.admit(None, JUDGE).name == ANONYMOUS
    token = keys.add("trainer", JUDGE)
    refused(door, None, 401)
    assert door.admit(token, JUDGE) == Caller("trainer", JUDGE)
    keys.revoke("trainer")
    refused(door, token, 401)
    refused(door, None, 401)
    (tmp_path / FILE).unlink()
    refused(door, None, 401)  # as long as this service runs


def test_off_is_off(keys: KeyStore) -> None:
    keys.add("trainer", JUDGE)
    assert Door(keys, "off", reachable=True).admit(None, JUDGE).name == ANONYMOUS


def test_a_key_is_good_for_its_scopes(keys: KeyStore) -> None:
    door = Door(keys, "required", reachable=False)
    reading = keys.add("dashboard", [Scope.READ])
    error = refused(door, reading, 403)
    assert error.detail == "it needs the scope judge"
    caller = door.admit(reading, frozenset({Scope.JUDGE, Scope.READ}))
    assert caller.sees_all
    judging = keys.add("trainer", JUDGE)
    assert not door.admit(judging, JUDGE).sees_all


def test_a_refusal_says_what_to_send_and_nothing_of_what_was_sent(keys: KeyStore) -> None:
    door = Door(keys, "required", reachable=False)
    missing = refused(door, None, 401)
    assert "Authorization: Bearer" in missing.detail
    assert missing.headers["WWW-Authenticate"] == 'Bearer realm="medverify"'
    wrong = refused(door, "mv_secret", 401)
    assert "secret" not in wrong.detail
    assert 'error="invalid_token"' in wrong.headers["WWW-Authenticate"]


def test_keys_that_cannot_be_read_let_nobody_in(
    keys: KeyStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door(keys, "auto", reachable=False)
    token = keys.add("trainer", JUDGE)
    keys.close()
    (tmp_path / FILE).write_bytes(b"no database " * 1000)
    for sent in (None, token):
        error = refused(door, sent, 503)
        assert str(tmp_path) not in error.detail
        assert error.headers["Retry-After"]
    assert FILE in caplog.text  # the operator is told which file it is
    assert token not in caplog.text


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("", False),
        ("::", False),
        ("192.168.1.7", False),
        ("example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_which_addresses_are_this_machines_own(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_no_start_where_everybody_could_come_in(keys: KeyStore, caplog: pytest.LogCaptureFixture) -> None:
    for rule in ("auto", "required"):
        check_start("127.0.0.1", rule, keys)  # type: ignore[arg-type]
        with pytest.raises(OpenToAllError, match="medverify keys add NAME"):
            check_start("0.0.0.0", rule, keys)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        check_start("0.0.0.0", "off", keys)
    assert "without keys" in caplog.text
    keys.add("trainer", JUDGE)
    check_start("0.0.0.0", "auto", keys)
    keys.revoke("trainer")
    with pytest.raises(OpenToAllError):
        check_start("0.0.0.0", "auto", keys)
