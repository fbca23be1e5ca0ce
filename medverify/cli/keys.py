"""`medverify keys`: who may use a service."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.table import Table

from medverify.cli.common import ConfigOption, JsonOption, SetOption, err, fail, out, settings_from
from serve.keys import FILE, Key, KeysError, KeyStore, Scope

HELP = "API keys of a service: make one, list them, revoke one. A running service goes by them at once."

NameArgument = Annotated[str, typer.Argument(help="Who or what uses the key; in the audit log.")]


def add(
    name: NameArgument,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="What it is good for: judge, retrieve, read; several with commas. Without: judge,retrieve."),
    ] = None,
    json_: JsonOption = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Make a key and print it: once, nobody can read it again.

    judge: everything that makes the judge work, and the caller's own judgments. retrieve: searches. read: everybody's
    judgments, metrics and information.
    """
    words = [word.strip() for text in scope or ["judge,retrieve"] for word in text.split(",")]
    if unknown := sorted(set(words) - set(Scope)):
        fail(f"unknown scope {', '.join(unknown)}; there are {', '.join(Scope)}")
    scopes = sorted({Scope(word) for word in words})
    with _keys(config, overrides) as keys:
        token = keys.add(name, scopes)
    if json_:
        print(json.dumps({"name": name, "scopes": scopes, "key": token}))  # noqa: T201
        return
    err.print(f"The key of {name} ({', '.join(scopes)}). Keep it now; it is not shown again.", highlight=False)
    print(token)  # noqa: T201 - alone, so that it can be piped
    err.print("Send it as the header `Authorization: Bearer …` or `X-API-Key: …`.", highlight=False)


def list_keys(json_: JsonOption = False, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """List all keys that were ever made; never the keys themselves.

    The fingerprint is the beginning of the SHA-256 of a key: it tells which one somebody holds.
    """
    with _keys(config, overrides) as keys:
        rows = keys.list()
    if json_:
        print(json.dumps([_as_json(key) for key in rows]))  # noqa: T201
        return
    if not rows:
        err.print("No key was made yet. Make one with: medverify keys add NAME", highlight=False)
        return
    table = Table("name", "scopes", "made", "revoked", "fingerprint", header_style="bold")
    for key in rows:
        revoked = f"{key.revoked:%Y-%m-%d %H:%M}" if key.revoked else ""
        table.add_row(
            key.name, ", ".join(sorted(key.scopes)), f"{key.created:%Y-%m-%d %H:%M}", revoked, key.fingerprint
        )
    out.print(table)


def revoke(
    name: NameArgument, json_: JsonOption = False, config: ConfigOption = None, overrides: SetOption = None
) -> None:
    """End a key: services that are running refuse it from now on. Its name may be given to a new one."""
    with _keys(config, overrides) as keys:
        key = keys.revoke(name)
    if json_:
        print(json.dumps(_as_json(key)))  # noqa: T201
    else:
        err.print(f"The key of {key.name} ({key.fingerprint}) is revoked.", highlight=False)


@contextmanager
def _keys(config: str | None, overrides: list[str] | None) -> Iterator[KeyStore]:
    store = KeyStore(settings_from(config, overrides).settings.paths.state / FILE)
    try:
        yield store
    except KeysError as error:
        fail(error)
    finally:
        store.close()


def _as_json(key: Key) -> dict[str, object]:
    return {
        "name": key.name,
        "scopes": sorted(key.scopes),
        "created": key.created.isoformat(),
        "revoked": key.revoked.isoformat() if key.revoked else None,
        "fingerprint": key.fingerprint,
    }
