"""API keys: made and revoked on the command line, checked by a running service, in one SQLite file.

A key is `mv_` and 32 random bytes. It is shown once, when it is made; what is kept is its SHA-256. That is enough for random
keys: nobody can try 2^256 of them, so no slow hash is needed, and a check costs microseconds.
"""

import hashlib
import hmac
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from serve.sqlite_file import connect, ensure_schema, transaction

PREFIX = "mv_"
FILE = "keys.sqlite"
MARKER = "keys.in-force"  # beside it, from the first key on: a file that was lost must not open the door
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_BUSY_S = 1.0  # readers do not wait for writers, so this is hardly ever waited
_SETTLED_S = 1.0  # a file that was changed later than this may change again without looking any different
_Look = list[tuple[int, ...] | None]  # of files: device, inode, bytes, nanoseconds of the last change
_VERSION = 1
_SCHEMA = """
CREATE TABLE keys (
    digest BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created TEXT NOT NULL,
    revoked TEXT
);;
CREATE UNIQUE INDEX one_valid_key_a_name ON keys (name) WHERE revoked IS NULL
"""


class Scope(StrEnum):
    """What a key is good for."""

    JUDGE = "judge"  # all that makes the judge work, and one's own judgments
    RETRIEVE = "retrieve"  # searches
    READ = "read"  # everybody's judgments, metrics and information; makes nothing work


class KeysError(Exception):
    """Something about keys that a user can mend; the message says how."""


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key; not the key itself."""

    name: str
    scopes: frozenset[Scope]
    created: datetime
    revoked: datetime | None
    fingerprint: str  # the first 8 hex digits of its SHA-256: tells which key one holds


class KeyStore:
    """The keys in one file. Any number of processes may change it; each sees the others' changes at its next check."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made when the first key is."""
        self._path = path
        self._marker = path.with_name(MARKER)
        self._looked_at = [os.fspath(path), f"{path}-wal", os.fspath(self._marker)]
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # device and inode of what the connection reads
        self._version = -1
        # In memory, replaced as a whole: whoever reads them waits for nobody.
        self._keys: dict[bytes, Key] = {}
        self._in_force = False
        self._seen: _Look | None = None  # how the files looked when they were last read; None: not to be relied on

    def add(self, name: str, scopes: Collection[Scope]) -> str:
        """Make a key and return it; nobody can read it again.

        Raises:
            KeysError: the name is unfit or belongs to a key that is not revoked, no scope is given, or the file cannot be used.
        """
        if not _NAME.fullmatch(name):
            raise KeysError(f"{name!r} is no name for a key: 1 to 64 letters, digits and . _ @ - are")
        if not scopes:
            raise KeysError(f"a key needs a scope: {', '.join(Scope)}")
        token = PREFIX + secrets.token_urlsafe(32)
        row = (_digest(token), name, ",".join(sorted(scopes)), _now())
        with self._lock:
            try:
                connection = self._open(create=True)
                with transaction(connection):
                    connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, NULL)", row)
            except sqlite3.IntegrityError:
                raise KeysError(
                    f"there is a key {name!r} already; revoke it first (medverify keys revoke {name}), or take another name"
                ) from None
            except (sqlite3.Error, OSError) as error:
                raise self._unusable(error) from error
            self._version = -1
            self._mark()
        return token

    def revoke(self, name: str) -> Key:
        """End a key. Services that are running refuse it from now on.

        Raises:
            KeysError: no valid key has this name, or the file cannot be used.
        """
        with self._lock:
            try:
                if not self._path.exists():
                    raise KeysError(f"there is no key {name!r}: none was made yet")
                connection = self._open(create=False)
                with transaction(connection):
                    changed = connection.execute(
                        "UPDATE keys SET revoked = ? WHERE name = ? AND revoked IS NULL", (_now(), name)
                    ).rowcount
                self._version = -1
                self._refresh()
            except (sqlite3.Error, OSError) as error:
                raise self._unusable(error) from error
            if not changed:
                valid = ", ".join(sorted(key.name for key in self._keys.values() if key.revoked is None)) or "none"
                raise KeysError(f"no valid key is named {name!r}; valid are: {valid}")
            return max((key for key in self._keys.values() if key.name == name and key.revoked), key=_revoked_at)

    def list(self) -> list[Key]:
        """All keys that were ever made, oldest first.

        Raises:
            KeysError: the file cannot be read.
        """
        self.refresh()
        return sorted(self._keys.values(), key=lambda key: key.created)

    def is_current(self) -> bool:
        """Whether what is in memory is what the file says. Asks the system about three names, and reads nothing."""
        return self._seen is not None and self._seen == self._look()

    def refresh(self) -> None:
        """Read the keys again if they were changed. Waits for the disk.

        Raises:
            KeysError: the file cannot be read; nobody may be let in.
        """
        with self._lock:
            try:
                self._refresh()
            except (sqlite3.Error, OSError) as error:
                raise self._unusable(error) from error

    def find(self, token: str) -> Key | None:
        """The key that this is, as far as is in memory, or None for one that is wrong or revoked."""
        digest = _digest(token)
        # Every key is compared, and each comparison takes the same time wherever two digests differ: the time of an answer
        # tells nothing about any key.
        found = [key for known, key in self._keys.items() if hmac.compare_digest(known, digest)]
        return found[0] if found and found[0].revoked is None else None

    @property
    def in_force(self) -> bool:
        """Whether a key was ever made, as far as is in memory. Revoked ones count, and lost ones do: neither opens the door."""
        return self._in_force

    @property
    def any_valid(self) -> bool:
        """Whether a key lets its holder in, as far as is in memory."""
        return any(key.revoked is None for key in self._keys.values())

    def lost(self) -> bool:
        """Whether there is no key any more where there once was one, not even a revoked one.

        Raises:
            KeysError: the file cannot be read.
        """
        self.refresh()
        return self._in_force and not self._keys

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._close()

    def _refresh(self) -> None:
        """Read the keys again if the file was changed or replaced. One that vanished has no keys."""
        looked, now = self._look(), time.time_ns()  # before anything is read: a change meanwhile is seen the next time
        try:
            self._path.stat()
        except FileNotFoundError:
            self._close()
            self._keys = {}
        else:
            self._read(self._open(create=False))
        if self._keys and not self._marker.exists():
            self._mark()
        self._in_force = bool(self._keys) or self._marker.exists()
        newest = max((seen[-1] for seen in looked if seen), default=0)
        self._seen = looked if now - newest > _SETTLED_S * 1e9 else None

    def _read(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            rows = connection.execute(
                "SELECT digest, name, scopes, created, revoked FROM keys ORDER BY rowid"
            ).fetchall()
            self._keys = {digest: _key(digest, *rest) for digest, *rest in rows}
            self._version = version

    def _look(self) -> _Look:
        """What tells a changed file from an unchanged one, for each; None: it is not there."""
        found: _Look = []
        for path in self._looked_at:
            try:
                status = os.stat(path)
            except OSError:  # one that cannot be reached fails when it is read
                found.append(None)
            else:
                found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        return found

    def _mark(self) -> None:
        with suppress(OSError):  # tried again whenever the keys are read
            os.close(os.open(self._marker, os.O_WRONLY | os.O_CREAT, 0o600))

    def _open(self, *, create: bool) -> sqlite3.Connection:
        if self._connection is not None and (not create or self._path.exists()):
            found = self._path.stat()
            if (found.st_dev, found.st_ino) == self._opened:
                return self._connection
        self._close()
        connection = connect(self._path, busy_s=_BUSY_S, durable=True)
        try:
            if not ensure_schema(connection, _VERSION, _SCHEMA):
                raise KeysError(f"{self._path} was made by another version of medverify")
        except BaseException:
            connection.close()
            raise
        found = self._path.stat()
        self._connection, self._opened = connection, (found.st_dev, found.st_ino)
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._opened, self._version, self._seen = None, None, -1, None

    def _unusable(self, error: Exception) -> KeysError:
        self._close()
        return KeysError(f"the keys in {self._path} cannot be used ({error}); no key is accepted until they can")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _key(digest: bytes, name: str, scopes: str, created: str, revoked: str | None) -> Key:
    return Key(
        name,
        frozenset(Scope(scope) for scope in scopes.split(",")),
        datetime.fromisoformat(created),
        datetime.fromisoformat(revoked) if revoked else None,
        digest.hex()[:8],
    )


def _revoked_at(key: Key) -> datetime:
    return key.revoked or key.created


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
