import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve.keys import FILE, Key, KeyStore, Scope

Cli = Callable[..., Any]


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"MEDVERIFY_PATHS__STATE": str(tmp_path)}


def found(store: KeyStore, token: str) -> Key | None:
    store.refresh()
    return store.find(token)


def test_a_key_from_its_making_to_its_end(cli: Cli, state: dict[str, str], tmp_path: Path) -> None:
    made = cli("keys", "add", "trainer", **state)
    assert made.exit_code == 0
    token = made.stdout.strip()
    assert "not shown again" in made.stderr
    assert token not in made.stderr  # so that it can be piped, and shows up in no log of errors
    store = KeyStore(tmp_path / FILE)
    key = found(store, token)
    assert key
    assert key.scopes == {Scope.JUDGE, Scope.RETRIEVE}

    shown = cli("keys", "list", **state)
    assert shown.exit_code == 0
    assert "trainer" in shown.stdout
    assert key.fingerprint in shown.stdout
    assert token.removeprefix("mv_") not in shown.stdout

    assert cli("keys", "revoke", "trainer", **state).exit_code == 0
    assert found(store, token) is None
    store.close()


@pytest.mark.parametrize("scopes", [["--scope", "judge,read"], ["--scope", "judge", "--scope", "read"]])
def test_for_programs(cli: Cli, state: dict[str, str], scopes: list[str]) -> None:
    made = json.loads(cli("keys", "add", "trainer", *scopes, "--json", **state).stdout)
    assert made["name"] == "trainer"
    assert made["scopes"] == ["judge", "read"]
    assert made["key"].startswith("mv_")
    (listed,) = json.loads(cli("keys", "list", "--json", **state).stdout)
    assert listed["scopes"] == ["judge", "read"]
    assert listed["revoked"] is None
    revoked = json.loads(cli("keys", "revoke", "trainer", "--json", **state).stdout)
    assert revoked["fingerprint"] == listed["fingerprint"]
    assert revoked["revoked"]


def test_without_a_key_the_list_says_how_to_make_one(cli: Cli, state: dict[str, str], tmp_path: Path) -> None:
    shown = cli("keys", "list", **state)
    assert shown.exit_code == 0
    assert "medverify keys add" in shown.stderr
    assert json.loads(cli("keys", "list", "--json", **state).stdout) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "a b"], "no name for a key"),
        (["add", "trainer", "--scope", "judge,admin"], "unknown scope admin; there are judge, retrieve, read"),
        (["add", "trainer", "--scope", ""], "unknown scope"),
        (["revoke", "nobody"], "nobody"),
        (["revoke", "[bold]"], "[bold]"),
    ],
)
def test_what_cannot_be_done_is_bad_input(cli: Cli, state: dict[str, str], arguments: list[str], message: str) -> None:
    ended = cli("keys", *arguments, **state)
    assert ended.exit_code == 2
    assert message in ended.stderr
    assert ended.stdout == ""


def test_no_start_where_everybody_could_come_in(cli: Cli, state: dict[str, str]) -> None:
    """And no waiting for a model before that is said."""
    ended = cli("serve", "--host", "0.0.0.0", "--model", "no-such-model", **state)
    assert ended.exit_code == 2
    assert "medverify keys add NAME" in ended.stderr
    assert cli("keys", "add", "trainer", **state).exit_code == 0
    assert "no-such-model" in cli("serve", "--host", "0.0.0.0", "--model", "no-such-model", **state).stderr


def test_keys_that_cannot_be_read(cli: Cli, state: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database " * 1000)
    for command in (["keys", "list"], ["keys", "add", "x"], ["keys", "revoke", "x"], ["serve", "--host", "0.0.0.0"]):
        ended = cli(*command, **state)
        assert ended.exit_code == 2
        assert FILE in ended.stderr
