"""A SQLite file that the service keeps: how it is opened, and what becomes of one that is damaged."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.durable import own_folder

logger = logging.getLogger(__name__)

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BELONGING = ("", "-wal", "-shm")  # what SQLite keeps of one database, by suffix


def connect(path: Path, *, busy_s: float, durable: bool = False) -> sqlite3.Connection:
    """Open a database, made if it is not there, for its owner alone.

    Write-ahead logging: readers and a writer do not wait for one another, and a process that is killed leaves a file that the
    next one opens. The connection may pass from thread to thread, but only one may use it at a time.

    Args:
        path: the file; its folder is made as well.
        busy_s: seconds to wait for another process that writes.
        durable: a commit waits for the disk. Otherwise the last ones may be lost with the power, though never half of one.

    Raises:
        sqlite3.Error: the file cannot be opened, or is none of SQLite's.
        OSError: its folder cannot be made.
    """
    own_folder(path.parent)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite itself would let everybody read it
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA journal_size_limit=16777216")  # or the log keeps the size of its longest day
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def ensure_schema(connection: sqlite3.Connection, version: int, script: str) -> bool:
    """Make the tables of a new database.

    Returns:
        False if the database has those of another version.
    """
    with transaction(connection):  # two processes may open a new file at once
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found == 0:
            for statement in script.split(";;"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={version}")
    return found in (0, version)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of the block's changes, or none of them."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk ends it by itself
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def is_damage(error: Exception) -> bool:
    """Whether the file itself is broken, rather than locked, full or out of reach."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGED


def set_aside(path: Path, reason: str) -> None:
    """Move a database out of the way, so that a new one can begin: to `NAME.aside`, in place of what was moved there before."""
    for suffix in _BELONGING:
        part = path.with_name(path.name + suffix)
        kept = path.with_name(f"{path.name}.aside{suffix}")
        if part.exists():
            part.replace(kept)
        else:
            kept.unlink(missing_ok=True)
    logger.error("%s %s; it is kept as %s.aside, and a new one is begun", path.name, reason, path.name)
