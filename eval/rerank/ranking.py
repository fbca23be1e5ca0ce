"""The samples of a file by question, best first, in bounded memory: what is compared is kept in a table on the disk.

A table of some sixty bytes a sample (SQLite, which sorts outside of memory) says which samples belong together and how they rank.
The rows themselves stay where they are, in the input if it can be read again from any place, else in a copy beside the table, and
are fetched when they are written. Rows of one question may therefore lie anywhere in the file.
"""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from eval.appended import ResumeError
from eval.cases import BadLine
from eval.rerank.columns import Columns, cases_of, parse
from eval.rerank.judgments import entries
from eval.rerank.sources import Row, Source
from verifier.types import Case, Status

_BLOCK = 1000  # samples put into the table together
_TABLE = """
CREATE TABLE samples (question BLOB, row INT, sample INT, p REAL, verdict INT, status TEXT, content BLOB,
                      row_at INT, row_size INT, judgment_at INT, judgment_size INT)
"""
# Questions in the order in which they first appear; of samples with the same p, the order follows from their content.
_RANKED = """
SELECT first, row, sample, p, verdict, status, row_at, row_size, judgment_at, judgment_size
FROM (SELECT *, MIN(row) OVER (PARTITION BY question) AS first FROM samples)
ORDER BY first, p IS NULL, p DESC, content, row, sample
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample in its place among those of its question."""

    row: int
    sample: int  # place among the samples of its row; 0 if the row is one
    p: float | None  # None: not judged
    verdict: int | None
    status: Status
    rank: int | None  # from 1, equal for equal p; None: not judged
    row_span: tuple[int, int]  # where its row stands in the file of rows, and its size
    judgment_span: tuple[int, int]


@dataclass
class Tally:
    """What became of the rows."""

    samples: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    rejected: int = 0  # rows, or samples of rows, that could not be judged as they are
    questions: int = 0
    unjudged_questions: int = 0  # without a single judged sample
    sum_p: float = 0.0  # over judged samples
    sum_best: float = 0.0  # over questions with a judged sample

    def figures(self) -> dict[str, Any]:
        """Counts and means, as the run is told of."""
        judged, questions = self.statuses.get(Status.SCORED.value, 0), self.questions - self.unjudged_questions
        return {
            "samples": self.samples,
            "statuses": dict(sorted(self.statuses.items())),
            "rejected": self.rejected,
            "questions": self.questions,
            "unjudged_questions": self.unjudged_questions,
            "mean_p": self.sum_p / judged if judged else None,
            "mean_best_p": self.sum_best / questions if questions else None,
        }

    def add(self, group: list[Sample]) -> None:
        """Count the samples of one question."""
        self.questions += 1
        self.samples += len(group)
        for sample in group:
            self.statuses[sample.status.value] = self.statuses.get(sample.status.value, 0) + 1
            self.sum_p += sample.p or 0.0
        if group[0].p is None:
            self.unjudged_questions += 1
        else:
            self.sum_best += group[0].p


class Ranking:
    """All samples of a file, ranked; made by `ranked`."""

    def __init__(self, table: sqlite3.Connection, rows: int, judgments: int) -> None:
        """Args:
        table: the samples.
        rows: descriptor of the file that holds the rows.
        judgments: descriptor of the file that holds the judgments.
        """
        self._table, self._rows, self._judgments = table, rows, judgments

    def questions(self) -> Iterator[list[Sample]]:
        """The samples of each question, best first; those that were not judged come last."""
        for _, found in groupby(self._table.execute(_RANKED), key=lambda found: found[0]):
            group = list[Sample]()
            for place, (_, row, sample, p, verdict, status, *spans) in enumerate(found, start=1):
                tied = group and group[-1].p == p
                rank = None if p is None else group[-1].rank if tied else place
                row_span, judgment_span = (spans[0], spans[1]), (spans[2], spans[3])
                group.append(Sample(row, sample, p, verdict, Status(status), rank, row_span, judgment_span))
            yield group

    def row(self, sample: Sample) -> Row:
        """The row that a sample is, or is in."""
        at, size = sample.row_span
        return Row(sample.row, os.pread(self._rows, size, at), at)

    def judgment(self, sample: Sample) -> dict[str, Any]:
        """The whole judgment of a sample."""
        at, size = sample.judgment_span
        judgment: dict[str, Any] = json.loads(os.pread(self._judgments, size, at))
        return judgment


@contextmanager
def ranked(
    source: Source,
    columns: Columns,
    group: str | None,
    judgments: Path,
    workspace: Path,
    on_bad: Callable[[Row, BadLine], None],
) -> Iterator[Ranking]:
    """Rank the samples of a file by their judgments.

    Args:
        source: the file.
        columns: where its samples are.
        group: column whose value is the same for samples of one question; None: question and options are.
        judgments: finished, of this file.
        workspace: a folder for what is needed meanwhile; made anew, and removed at the end.
        on_bad: told of each row, or sample, that has no judgment because it could not be judged as it is.

    Raises:
        ResumeError: the judgments are not those of this file.
        SourceError, OSError: a file cannot be read.
    """
    shutil.rmtree(workspace, ignore_errors=True)  # of a run that was killed
    workspace.mkdir()
    try:
        rows = workspace / "rows.jsonl"
        with closing(sqlite3.connect(workspace / "samples.sqlite", isolation_level=None)) as table:
            # What is lost with the process is made again; the cache is all the memory that it takes.
            for pragma in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE", "cache_size=-8192"):
                table.execute(f"PRAGMA {pragma}")
            table.execute(_TABLE)
            with rows.open("wb") as copy:
                found = _samples(source, columns, group, judgments, copy.write, on_bad)
                table.execute("BEGIN")
                while block := list(islice(found, _BLOCK)):
                    table.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", block)
                table.execute("COMMIT")
            in_place = rows.stat().st_size == 0
            with (source.path if in_place else rows).open("rb") as texts, judgments.open("rb") as judged:
                yield Ranking(table, texts.fileno(), judged.fileno())
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _samples(
    source: Source,
    columns: Columns,
    group: str | None,
    judgments: Path,
    copy: Callable[[bytes], object],
    on_bad: Callable[[Row, BadLine], None],
) -> Iterator[tuple[object, ...]]:
    """Rows of the table: the file and its judgments, which are in the same order, side by side."""
    judged, copied = entries(judgments), 0
    for row in source.rows():
        record = parse(source, row)
        if isinstance(record, BadLine):
            on_bad(row, record)
            continue
        at = row.at
        if at is None:
            copy(row.text)
            at, copied = copied, copied + len(row.text)
        for place, case in cases_of(columns, source, row, record):
            if isinstance(case, BadLine):
                on_bad(row, case)
                continue
            entry = next(judged, None)
            if entry is None or (entry.row, entry.sample) != (row.number, place):
                raise ResumeError(f"{judgments} does not hold the judgments of {source.path}; move it away")
            if group is not None and record.get(group) is None:
                on_bad(row, BadLine(row.number, (f"{group}: expected the question's group, found nothing",), source.unit))
                continue
            yield (
                _question(columns, group, row, record, case),
                *(entry.row, entry.sample, entry.p, entry.verdict, entry.status.value, entry.content),
                *(at, len(row.text), entry.at, len(entry.text)),
            )
    if next(judged, None) is not None:
        raise ResumeError(f"{judgments} holds more judgments than {source.path} has samples; move it away")


def _question(columns: Columns, group: str | None, row: Row, record: dict[str, Any], case: Case) -> bytes:
    """What samples of one question share, as a digest. With samples in a list, each row is a question."""
    if columns.samples is not None:
        return row.number.to_bytes(8, "big")
    shared = case.question.model_dump_json() if group is None else json.dumps(record[group], sort_keys=True)
    return hashlib.blake2b(shared.encode(errors="surrogatepass"), digest_size=16).digest()
