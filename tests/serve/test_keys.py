import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serve.keys import FILE, MARKER, PREFIX, Key, KeysError, KeyStore, Scope

JUDGE = [Scope.JUDGE]


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "state" / FILE)


def check(store: KeyStore, token: str) -> Key | None:
    store.refresh()
    return store.find(token)


def in_force(store: KeyStore) -> bool:
    store.refresh()
    return store.in_force


def test_a_key_is_known_by_itself_alone(store: KeyStore) -> None:
    token = store.add("trainer", [Scope.JUDGE, Scope.READ])
    other = store.add("another", JUDGE)
    assert token.startswith(PREFIX)
    assert len(token) == len(PREFIX) + 43  # 32 bytes
    key = check(store, token)
    assert key
    assert (key.name, key.scopes, key.revoked) == ("trainer", {Scope.JUDGE, Scope.READ}, None)
    assert check(store, other) != key
    for wrong in ("", PREFIX, token[:-1], token + "x", token.lower(), token.removeprefix(PREFIX), "\ud800", "é"):
        assert check(store, wrong) is None


def test_the_key_itself_is_nowhere(store: KeyStore, tmp_path: Path) -> None:
    token = store.add("trainer", JUDGE)
    check(store, token)
    store.close()
    content = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    assert b"trainer" in content
    assert token.removeprefix(PREFIX).encode() not in content
    assert token not in repr(store.list())


def test_only_the_owner_may_read(store: KeyStore, tmp_path: Path) -> None:
    store.add("trainer", JUDGE)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()} == {0o600}


def test_revoking_ends_a_key_and_frees_its_name(store: KeyStore) -> None:
    token = store.add("trainer", JUDGE)
    with pytest.raises(KeysError, match="medverify keys revoke trainer"):
        store.add("trainer", JUDGE)
    revoked = store.revoke("trainer")
    assert revoked.revoked is not None
    assert check(store, token) is None
    fresh = store.add("trainer", JUDGE)
    assert check(store, token) is None
    assert check(store, fresh)
    assert [key.revoked is None for key in store.list()] == [False, True]
    assert store.revoke("trainer").fingerprint != revoked.fingerprint


@pytest.mark.parametrize("made", [False, True])
def test_what_is_not_there_cannot_be_revoked(store: KeyStore, made: bool) -> None:
    if made:
        store.add("trainer", JUDGE)
    with pytest.raises(KeysError, match="trainr"):
        store.revoke("trainr")


@pytest.mark.parametrize("name", ["", " ", "a b", "-x", "x\n", "é", "x" * 65, "<b>", "a\x1b[31m"])
def test_names_that_are_none(store: KeyStore, name: str) -> None:
    """They end up in logs and tables."""
    with pytest.raises(KeysError, match="no name"):
        store.add(name, JUDGE)
    assert not in_force(store)


def test_a_key_needs_a_scope(store: KeyStore) -> None:
    with pytest.raises(KeysError, match="judge, retrieve, read"):
        store.add("trainer", [])


def test_before_the_first_key_there_is_none_and_no_file(store: KeyStore, tmp_path: Path) -> None:
    assert not in_force(store)
    assert store.list() == []
    assert check(store, "mv_x") is None
    assert list(tmp_path.iterdir()) == []


def test_revoked_keys_count_as_keys(store: KeyStore) -> None:
    """Or revoking the last one would open the door."""
    store.add("trainer", JUDGE)
    store.revoke("trainer")
    assert in_force(store)


def test_a_running_process_sees_what_another_does(store: KeyStore, tmp_path: Path) -> None:
    path = tmp_path / "state" / FILE
    assert not in_force(store)

    def elsewhere(code: str) -> str:
        head = "import sys; from pathlib import Path; from serve.keys import KeyStore, Scope; s = KeyStore(Path(sys.argv[1]));"
        command = [sys.executable, "-c", head + code, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    token = elsewhere("print(s.add('trainer', [Scope.JUDGE]))")
    assert in_force(store)
    assert check(store, token)
    elsewhere("s.revoke('trainer')")
    assert check(store, token) is None


def test_a_file_that_was_replaced_or_removed_is_noticed(store: KeyStore, tmp_path: Path) -> None:
    path = tmp_path / "state" / FILE
    token = store.add("trainer", JUDGE)
    store.close()
    other = KeyStore(tmp_path / FILE)
    another = other.add("another", JUDGE)
    other.close()
    assert check(store, token)
    os.replace(tmp_path / FILE, path)
    assert check(store, token) is None
    assert check(store, another)
    path.unlink()
    assert check(store, another) is None
    assert in_force(store)


@pytest.mark.parametrize("loss", ["gone", "emptied", "without its rows"])
def test_keys_that_were_lost_do_not_open_the_door(store: KeyStore, tmp_path: Path, loss: str) -> None:
    path = tmp_path / "state" / FILE
    token = store.add("trainer", JUDGE)
    store.close()
    if loss == "gone":
        for file in path.parent.glob(f"{FILE}*"):
            file.unlink()
    elif loss == "emptied":
        path.write_bytes(b"")
    else:
        with sqlite3.connect(path) as database:
            database.execute("DELETE FROM keys")
    again = KeyStore(path)  # after a restart
    assert check(again, token) is None
    assert in_force(again)
    assert again.lost()
    assert check(again, again.add("trainer", JUDGE))
    assert not again.lost()


def test_keys_from_before_there_was_a_marker_get_one(store: KeyStore, tmp_path: Path) -> None:
    store.add("trainer", JUDGE)
    marker = tmp_path / "state" / MARKER
    marker.unlink()
    assert in_force(store)
    assert marker.exists()


def test_what_is_in_memory_is_relied_on_until_the_file_changes(store: KeyStore, tmp_path: Path) -> None:
    assert not store.is_current()  # nothing was read yet
    store.refresh()
    assert store.is_current()  # and there is nothing
    other = KeyStore(tmp_path / "state" / FILE)
    token = other.add("trainer", JUDGE)
    assert not store.is_current()
    assert check(store, token)
    assert not store.is_current()  # changed a moment ago: another change might look the same
    long_ago = time.time() - 60
    for file in (tmp_path / "state").iterdir():
        os.utime(file, (long_ago, long_ago))
    store.refresh()
    assert store.is_current()
    other.revoke("trainer")
    assert not store.is_current()
    assert check(store, token) is None


def test_a_clock_that_was_put_back_hides_no_change(store: KeyStore, tmp_path: Path) -> None:
    store.add("trainer", JUDGE)
    tomorrow = time.time() + 86_400
    os.utime(tmp_path / "state" / FILE, (tomorrow, tomorrow))
    store.refresh()
    assert not store.is_current()


@pytest.mark.parametrize("damage", ["other bytes", "another version", "a folder"])
def test_keys_that_cannot_be_read_let_nobody_in(store: KeyStore, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "state" / FILE
    store.add("trainer", JUDGE)
    store.close()
    if damage == "other bytes":
        path.write_bytes(b"no database " * 1000)
    elif damage == "another version":
        database = sqlite3.connect(path)
        database.execute("PRAGMA user_version = 99")
        database.close()
    else:
        path.unlink()
        path.mkdir()
    for ask in (store.refresh, store.list, store.lost):
        with pytest.raises(KeysError, match=r"keys\.sqlite"):
            ask()
    if damage == "other bytes":
        assert path.read_bytes().startswith(b"no database")  # kept for whoever mends it


def test_a_check_costs_little(store: KeyStore, tmp_path: Path) -> None:
    """It runs at every request, on the event loop."""
    for number in range(100):
        store.add(f"key-{number}", JUDGE)
    token = store.add("trainer", JUDGE)
    long_ago = time.time() - 60
    for file in (tmp_path / "state").iterdir():
        os.utime(file, (long_ago, long_ago))
    store.refresh()
    started = time.process_time()
    for _ in range(1000):
        assert store.is_current()
        assert store.find(token)
    assert time.process_time() - started < 1.0  # a millisecond each; measured: 12 µs


def test_checks_from_many_threads(store: KeyStore) -> None:
    token = store.add("trainer", JUDGE)
    with ThreadPoolExecutor(4) as threads:
        checks = [threads.submit(lambda: [check(store, token) for _ in range(200)]) for _ in range(4)]
        for number in range(5):
            store.add(f"key-{number}", JUDGE)
        assert all(key for check in checks for key in check.result())
