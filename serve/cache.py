"""Judgments that were made already, in one SQLite file: the same judge, case, question and seed are not judged twice.

Only what was scored is kept: a failure is tried again. The cache may fail at any time (full disk, locked or damaged file) and
costs no request more than the judgment that it could have saved; `stats` counts what happened.
"""

import asyncio
import hashlib
import logging
import sqlite3
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from serve.served_judge import ServedJudge
from serve.sqlite_file import connect, ensure_schema, is_damage, set_aside, transaction
from verifier.types import Case, Judgment, Status

logger = logging.getLogger(__name__)
T = TypeVar("T")

FILE = "judgments.sqlite"
_BUSY_S = 0.25  # a request may be waiting
_MOST_WAITING = 1000  # judgments on their way into the file
_PATIENCE_S, _SHARE = 5.0, 0.25  # with the disk, for a request; and of the time that the request has, at most
_DAY_S = 86_400
_VERSION = 1
_SCHEMA = """
CREATE TABLE judgments (
    key BLOB NOT NULL UNIQUE,
    used INTEGER NOT NULL,
    made INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
);;
CREATE INDEX by_use ON judgments (used);;
CREATE INDEX by_age ON judgments (made);;
CREATE TABLE totals (rows INTEGER NOT NULL, bytes INTEGER NOT NULL);;
INSERT INTO totals VALUES (0, 0);;
CREATE TRIGGER counted AFTER INSERT ON judgments BEGIN
    UPDATE totals SET rows = rows + 1, bytes = bytes + length(NEW.body);
END;;
CREATE TRIGGER discounted AFTER DELETE ON judgments BEGIN
    UPDATE totals SET rows = rows - 1, bytes = bytes - length(OLD.body);
END
"""


@dataclass(slots=True)
class CacheStats:
    """What the cache did since the service started."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    evicted: int = 0
    errors: int = 0  # of the file: full, locked, damaged, unreadable
    skipped: int = 0  # asked or offered while the cache rested after an error
    dropped: int = 0  # offered while it had too much to write


class JudgmentCache:
    """Made on the event loop and used there; the file is touched in one thread of its own."""

    def __init__(self, path: Path, *, max_rows: int, max_bytes: int, max_age_days: float, rest_s: float = 10.0) -> None:
        """Name the file; it is opened when it is first needed, so that a broken one never keeps a service from starting.

        Args:
            path: the file.
            max_rows: judgments kept; the one that was not asked for the longest time goes first.
            max_bytes: size of their texts together; the file is somewhat larger.
            max_age_days: days after which a judgment is forgotten however often it is asked for; 0: never.
            rest_s: seconds without a cache after a fault, so that a locked file or a full disk does not slow every request.
        """
        self._rest_s = rest_s
        self._path = path
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_age_s = max_age_days * _DAY_S
        self.stats = CacheStats()
        self._thread = ThreadPoolExecutor(1, "judgment-cache")
        self._waiting = 0
        self._slow_until = float("-inf")  # on the monotonic clock: the disk did not answer
        # The rest belongs to the thread.
        self._connection: sqlite3.Connection | None = None
        self._resting_until = 0.0
        self._tick = 0  # orders uses; a clock may jump
        self._touched: dict[int, int] = {}

    async def get(
        self, judge: ServedJudge, case: Case, seed: int, about: str, *, left_s: float = _PATIENCE_S
    ) -> Judgment | None:
        """The judgment of this case, if it was made: with this case's id, what `judge`'s calibration says of it now, and
        without the times it took, because this time it took none.

        Args:
            judge: who is asked.
            case: what is judged; its id does not matter.
            seed: of the sampling.
            about: the question that is asked about the trace.
            left_s: seconds that the request has. A file that does not answer in a part of them has not got the judgment.
        """
        key = _key(judge.judge_id, case.digest, seed, about)
        found = await self._read_in_time(key, min(_PATIENCE_S, _SHARE * left_s))
        if found is None or (found.judge_id, found.case_digest, found.seed) != (judge.judge_id, case.digest, seed):
            self.stats.misses += 1
            return None
        self.stats.hits += 1
        return found.model_copy(update={"id": case.id, "p_calibrated": judge.calibrated(found.p_correct)})

    async def _read_in_time(self, key: bytes, within_s: float) -> Judgment | None:
        if time.monotonic() < self._slow_until:
            self.stats.skipped += 1
            return None
        try:
            async with asyncio.timeout(within_s):
                return await self._in_thread(lambda: self._attempt(lambda connection: self._read(connection, key)))
        except TimeoutError:
            self.stats.errors += 1
            self._slow_until = time.monotonic() + self._rest_s
            logger.warning("the judgment cache does not answer; going on without it for %g s", self._rest_s)
            return None

    def put(self, judgment: Judgment, about: str) -> None:
        """Keep a judgment if it was scored. Returns at once; it is written soon after, or dropped if that fails."""
        if judgment.status is not Status.SCORED:
            return
        if self._waiting >= _MOST_WAITING:
            self.stats.dropped += 1
            return
        self._waiting += 1
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, judgment, about)
        writing.add_done_callback(self._written)

    async def tidy(self) -> None:
        """Forget what is too old, also where nothing new comes in; to be called now and then."""
        await self._in_thread(lambda: self._attempt(self._forget))

    async def flush(self) -> None:
        """Wait until everything put so far is in the file, or was dropped."""
        await self._in_thread(lambda: None)

    async def aclose(self) -> None:
        """Write what is waiting and close the file."""
        await self._in_thread(self._close)
        self._thread.shutdown()

    async def _in_thread(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, action)

    def _written(self, _: object) -> None:
        self._waiting -= 1

    # ---- in the thread ---------------------------------------------------------------------------------------------

    def _attempt(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do it, or count why not."""
        if time.monotonic() < self._resting_until:
            self.stats.skipped += 1
            return None
        try:
            return action(self._open())
        except (sqlite3.Error, OSError) as error:
            self.stats.errors += 1
            self._recover(error)
            return None

    def _recover(self, error: Exception) -> None:
        self._close_connection()
        if is_damage(error):
            try:
                set_aside(self._path, "is damaged")
            except OSError as another:
                error = another
            else:
                return
        self._resting_until = time.monotonic() + self._rest_s
        logger.warning("the judgment cache cannot be used (%s); going on without it for %g s", error, self._rest_s)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = connect(self._path, busy_s=_BUSY_S)
            try:
                if not ensure_schema(connection, _VERSION, _SCHEMA):
                    connection.close()
                    set_aside(self._path, "was made by another version of medverify")
                    return self._open()
                (self._tick,) = connection.execute("SELECT coalesce(max(used), 0) FROM judgments").fetchone()
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _read(self, connection: sqlite3.Connection, key: bytes) -> Judgment | None:
        row = connection.execute("SELECT rowid, made, crc, body FROM judgments WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        number, made, crc, body = row
        if self._max_age_s and time.time() - made > self._max_age_s:
            return None
        try:
            if zlib.crc32(body) != crc:
                raise ValueError("its checksum differs")
            judgment = Judgment.model_validate_json(body)
        except ValueError as error:  # pydantic's are among them
            self.stats.errors += 1
            reason = f"{error.error_count()} fields are unfit" if isinstance(error, ValidationError) else error
            logger.warning("a cached judgment cannot be read (%s); it is forgotten", reason)
            connection.execute("DELETE FROM judgments WHERE rowid = ?", (number,))
            return None
        self._tick += 1
        self._touched[number] = self._tick  # written with the next judgment: reading must not wait for a lock
        return judgment

    def _write(self, judgment: Judgment, about: str) -> None:
        # What depends on who asks, and when, is not part of it.
        kept = judgment.without_clock().model_copy(update={"id": "-", "p_calibrated": None})
        body = kept.model_dump_json().encode()
        key = _key(judgment.judge_id, judgment.case_digest, judgment.seed, about)
        if len(body) <= self._max_bytes:
            self._attempt(lambda connection: self._insert(connection, key, body))

    def _insert(self, connection: sqlite3.Connection, key: bytes, body: bytes) -> None:
        self._tick += 1
        with transaction(connection):
            self._note_uses(connection)
            # What was answered once stays the answer, until it is too old.
            self._delete_older(connection)
            added = connection.execute(
                "INSERT INTO judgments VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
                (key, self._tick, int(time.time()), zlib.crc32(body), body),
            ).rowcount
            evicted = self._evict(connection)
        self.stats.stored += added
        self.stats.evicted += evicted

    def _evict(self, connection: sqlite3.Connection) -> int:
        rows, size = connection.execute("SELECT rows, bytes FROM totals").fetchone()
        leaving = []
        if rows > self._max_rows or size > self._max_bytes:
            for number, length in connection.execute("SELECT rowid, length(body) FROM judgments ORDER BY used"):
                if rows <= self._max_rows and size <= self._max_bytes:
                    break
                leaving.append((number,))
                rows, size = rows - 1, size - length
            connection.executemany("DELETE FROM judgments WHERE rowid = ?", leaving)
        return len(leaving)

    def _forget(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            self._note_uses(connection)
            self._delete_older(connection)

    def _note_uses(self, connection: sqlite3.Connection) -> None:
        touched, self._touched = self._touched, {}
        connection.executemany(
            "UPDATE judgments SET used = ? WHERE rowid = ?", [(tick, number) for number, tick in touched.items()]
        )

    def _delete_older(self, connection: sqlite3.Connection) -> None:
        if self._max_age_s:
            oldest = int(time.time() - self._max_age_s)
            self.stats.evicted += connection.execute("DELETE FROM judgments WHERE made < ?", (oldest,)).rowcount

    def _close(self) -> None:
        if self._touched:
            self._attempt(self._forget)
        self._close_connection()

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._touched.clear()


def _key(judge_id: str, case_digest: str, seed: int, about: str) -> bytes:
    return hashlib.sha256(f"{judge_id}\n{case_digest}\n{seed}\n{about}".encode()).digest()
