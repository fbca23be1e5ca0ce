"""The passages that judges relied on, each kept once, so that evidence in the audit log resolves after the index was replaced."""

import hashlib
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from pathlib import Path

from retrieval.passage import Passage
from serve.sqlite_file import connect, ensure_schema, is_damage, set_aside, transaction

FILE = "passages.sqlite"
_BUSY_S = 1.0
_DAY_S = 86_400
_REMEMBERED = 50_000  # passages known to be there: most searches find what others found
_VERSION = 1
_SCHEMA = """
CREATE TABLE passages (
    digest TEXT NOT NULL PRIMARY KEY,
    seen INTEGER NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;;
CREATE INDEX by_day ON passages (seen)
"""


def passage_digest(passage: Passage) -> str:
    """SHA-256 of a passage with its title and source; score and rank, which belong to a search, are left out."""
    return hashlib.sha256(_body(passage).encode()).hexdigest()


class PassageStore:
    """Passages by digest, in one file. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is opened when it is first needed."""
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._days: OrderedDict[str, int] = OrderedDict()  # of passages that are there, when they were last seen

    def keep(self, passages: Iterable[Passage]) -> None:
        """Keep what is not there yet, and note that the rest was used today.

        Raises:
            sqlite3.Error, OSError: not all of it is kept.
        """
        today = int(time.time() // _DAY_S)
        bodies = {passage_digest(passage): _body(passage) for passage in passages}
        rows = [(digest, today, body) for digest, body in bodies.items() if self._days.get(digest) != today]
        if not rows:
            return
        try:
            self._insert(rows)
        except sqlite3.Error as error:
            self._recover(error)
            if not is_damage(error):
                raise
            self._insert(rows)  # into a new file
        self._days |= {digest: today for digest, _, _ in rows}
        while len(self._days) > _REMEMBERED:
            self._days.popitem(last=False)

    def find(self, digests: Collection[str]) -> dict[str, Passage]:
        """Those of the passages that are there.

        Raises:
            sqlite3.Error, OSError: the file cannot be read.
        """
        if not self._path.exists():
            return {}
        try:
            connection = self._open()
            found = {}
            for digest in set(digests):
                row = connection.execute("SELECT body FROM passages WHERE digest = ?", (digest,)).fetchone()
                if row is not None and hashlib.sha256(row[0].encode()).hexdigest() == digest:
                    found[digest] = Passage.model_validate_json(row[0])
        except sqlite3.Error as error:
            self._recover(error)
            raise
        return found

    def forget(self, oldest: float) -> int:
        """Delete passages that nobody relied on since `oldest` (seconds since 1970).

        Raises:
            sqlite3.Error, OSError: nothing was deleted.
        """
        if not self._path.exists():
            return 0
        day = int(oldest // _DAY_S)
        try:
            deleted = self._open().execute("DELETE FROM passages WHERE seen < ?", (day,)).rowcount
        except sqlite3.Error as error:
            self._recover(error)
            raise
        if deleted:
            self._days.clear()
        return deleted

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _insert(self, rows: list[tuple[str, int, str]]) -> None:
        connection = self._open()
        with transaction(connection):
            connection.executemany(
                "INSERT INTO passages VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE SET seen = excluded.seen", rows
            )

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = connect(self._path, busy_s=_BUSY_S)
            try:
                if not ensure_schema(connection, _VERSION, _SCHEMA):
                    raise sqlite3.OperationalError(f"{self._path.name} was made by another version of medverify")
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _recover(self, error: sqlite3.Error) -> None:
        """Begin anew after damage: later judgments must not lose their evidence for what happened to earlier ones."""
        self.close()
        self._days.clear()
        if is_damage(error):
            set_aside(self._path, "is damaged")


def _body(passage: Passage) -> str:
    return passage.model_dump_json(include=set(Passage.model_fields))
