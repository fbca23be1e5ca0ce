import asyncio
import logging
import threading
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


async def refused(door: Door, token: str | None, status: int) -> ServiceError:
    with pytest.raises(ServiceError) as error:
        await door.let_in(token)
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
async def test_whether_a_key_is_needed_before_one_was_made(
    keys: KeyStore, rule: Rule, reachable: bool, asked: bool
) -> None:
    door = Door(keys, rule, reachable=reachable)
    if asked:
        await refused(door, None, 401)
        await refused(door, "mv_anything", 401)
    else:
        assert (await door.let_in(None)) == Caller(ANONYMOUS)
        assert (await door.let_in("mv_anything")).sees_all


async def test_the_first_key_closes_the_door_and_nothing_opens_it_again(keys: KeyStore, tmp_path: Path) -> None:
    door = Door(keys, "auto", reachable=False)
    assert (await door.let_in(None)).name == ANONYMOUS
    token = keys.add("trainer", JUDGE)
    await refused(door, None, 401)
    assert (await door.let_in(token)) == Caller("trainer", JUDGE)
    keys.revoke("trainer")
    await refused(door, token, 401)
    await refused(door, None, 401)
    (tmp_path / FILE).unlink()
    await refused(door, None, 401)  # as long as this service runs


async def test_off_is_off(keys: KeyStore) -> None:
    keys.add("trainer", JUDGE)
    assert (await Door(keys, "off", reachable=True).let_in(None)).name == ANONYMOUS


async def test_a_caller_has_the_name_and_the_scopes_of_its_key(keys: KeyStore) -> None:
    door = Door(keys, "required", reachable=False)
    assert (await door.let_in(keys.add("dashboard", [Scope.READ]))).sees_all
    assert await door.let_in(keys.add("trainer", JUDGE)) == Caller("trainer", JUDGE)
    assert not Caller("trainer", JUDGE).sees_all


async def test_a_disk_that_does_not_answer_lets_nobody_in_and_holds_up_nothing_else(
    keys: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.callers._PATIENCE_S", 0.1)
    stuck = threading.Event()
    refresh = keys.refresh

    def waits() -> None:
        stuck.wait(10)
        refresh()

    monkeypatch.setattr(keys, "refresh", waits)
    door = Door(keys, "required", reachable=False)
    asking = [asyncio.create_task(refused(door, "mv_x", 503)) for _ in range(3)]
    beats = 0
    while not all(task.done() for task in asking):
        await asyncio.sleep(0.01)
        beats += 1
    assert beats > 5  # the event loop went on
    for task in asking:
        assert (await task).headers["Retry-After"]
    stuck.set()
    await refused(door, "mv_x", 401)


async def test_a_door_that_was_closed_stays_closed_after_a_restart_without_keys(
    keys: KeyStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys.add("trainer", JUDGE)
    keys.close()
    (tmp_path / FILE).unlink()
    after = KeyStore(tmp_path / FILE)
    check_start("127.0.0.1", "auto", after)
    assert "medverify keys add NAME" in caplog.text
    await refused(Door(after, "auto", reachable=False), None, 401)
    assert (await Door(after, "off", reachable=False).let_in(None)).name == ANONYMOUS


async def test_a_refusal_says_what_to_send_and_nothing_of_what_was_sent(keys: KeyStore) -> None:
    door = Door(keys, "required", reachable=False)
    missing = await refused(door, None, 401)
    assert "Authorization: Bearer" in missing.detail
    assert missing.headers["WWW-Authenticate"] == 'Bearer realm="medverify"'
    wrong = await refused(door, "mv_secret", 401)
    assert "secret" not in wrong.detail
    assert 'error="invalid_token"' in wrong.headers["WWW-Authenticate"]


async def test_keys_that_cannot_be_read_let_nobody_in(
    keys: KeyStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door(keys, "auto", reachable=False)
    token = keys.add("trainer", JUDGE)
    keys.close()
    (tmp_path / FILE).write_bytes(b"no database " * 1000)
    for sent in (None, token):
        error = await refused(door, sent, 503)
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
