"""The audit log on the disk: lines in files, and the passages that they refer to. Everything here waits for the disk."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from configs.settings import AuditSettings
from retrieval.passage import Passage
from serve.audit_files import AuditWriter, Line, delete_older, find_line, newest_first
from serve.audit_schemas import AuditedJudgment, AuditLine, Judged, JudgmentPage
from serve.evidence import FILE, PassageStore
from serve.judgment_ids import JudgmentIds, is_judgment_id
from verifier.types import Status

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which judgments a page is to hold; None: any."""

    status: Status | None = None
    verdict: Literal[0, 1] | None = None
    caller: str | None = None

    def may_be(self, line: bytes) -> bool:
        """Whether it is worth while to read a line: most are left out by a few of their bytes."""
        status, verdict = self.status, self.verdict
        return (status is None or f'"status":"{status.value}"'.encode() in line) and (
            verdict is None or b'"verdict":%d' % verdict in line
        )

    def has(self, line: AuditLine) -> bool:
        """Whether the page is to hold it."""
        return (
            self.status in (None, line.status)
            and self.verdict in (None, line.verdict)
            and self.caller in (None, line.caller)
        )


class AuditStore:
    """Not for several threads at once, except `page`."""

    def __init__(
        self,
        folder: Path,
        settings: AuditSettings,
        *,
        clock: Callable[[], float] = time.time,
        most_examined: int = 20_000,
    ) -> None:
        """Name the folder; it is opened with the first judgment.

        Args:
            folder: of all processes that write this log.
            settings: what is kept, and for how long.
            clock: seconds since 1970.
            most_examined: lines read for one page: a rare filter must not read gigabytes for one answer.
        """
        self._most_examined = most_examined
        self._folder = folder
        self._settings = settings
        self._clock = clock
        self._passages = PassageStore(folder / FILE)
        self._writer: AuditWriter | None = None
        self._ids = JudgmentIds(clock)

    def write(self, judged: Sequence[Judged]) -> list[str]:
        """Append a line for each judgment and keep its passages; returns the lines' ids.

        Raises:
            OSError, sqlite3.Error: no line was written.
        """
        writer = self._opened()
        # First the passages: a line never refers to one that is not there.
        self._passages.keep(
            passage for item in judged for search in item.judgment.searches for passage in search.passages
        )
        now = datetime.fromtimestamp(self._clock(), UTC)
        lines = []
        for item in judged:
            id = self._ids.next()
            line = AuditLine.of(item, id, now, texts=self._settings.texts)
            lines.append(Line(id, line.model_dump_json().encode()))
        writer.append(lines)
        return [line.id for line in lines]

    def check(self) -> None:
        """Return if something could be written at the moment.

        Raises:
            OSError: it could not.
        """
        self._opened().check()

    def find(self, id: str) -> AuditedJudgment | None:
        """The judgment with this id and what is left of its evidence, or None.

        Raises:
            OSError: the files cannot be read.
        """
        text = find_line(self._folder, id) if is_judgment_id(id) else None
        if text is None:
            return None
        line = AuditLine.model_validate_json(text)
        return AuditedJudgment.resolved(line, self._evidence(line))

    def page(self, wanted: Wanted, before: str | None, limit: int) -> JudgmentPage:
        """Judgments older than the one named, newest first, at most `limit`.

        Raises:
            OSError: the files cannot be read.
        """
        found: list[AuditLine] = []
        last: str | None = None
        for number, (id, text) in enumerate(newest_first(self._folder, before)):
            if len(found) == limit or number == self._most_examined:
                return JudgmentPage(judgments=found, next=last)
            last = id
            if wanted.may_be(text):
                line = AuditLine.model_validate_json(text)
                if wanted.has(line):
                    found.append(line)
        return JudgmentPage(judgments=found, next=None)

    def tidy(self) -> None:
        """Delete what is older than the retention setting.

        Raises:
            OSError, sqlite3.Error: some of it is still there.
        """
        if self._writer is not None:
            self._writer.finish_old()
        if self._settings.retention_days:
            oldest = self._clock() - self._settings.retention_days * _DAY_S
            delete_older(self._folder, oldest)
            self._passages.forget(oldest)

    def close(self) -> None:
        """Let go of the files."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._passages.close()

    def _opened(self) -> AuditWriter:
        if self._writer is None:
            settings = self._settings
            hours = [settings.max_file_hours, *([settings.retention_days * 24] if settings.retention_days else [])]
            self._writer = AuditWriter(self._folder, max_bytes=settings.max_file_bytes, max_age_s=min(hours) * 3600)
            self._ids = JudgmentIds(self._clock, self._writer.last_id)
        return self._writer

    def _evidence(self, line: AuditLine) -> dict[str, Passage]:
        try:
            return self._passages.find({passage.sha256 for search in line.searches for passage in search.passages})
        except (OSError, sqlite3.Error):
            return {}  # the line itself is still worth showing; its passages have their ids
