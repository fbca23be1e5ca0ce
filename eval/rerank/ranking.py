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
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from configs.appended import ResumeError
from eval.cases import BadLine
from eval.rerank.judgments import Entry, entries
from eval.rerank.options import OutputOptions
from eval.rerank.samples import Columns, Samples
from eval.rerank.sources import Row
from verifier.types import Status

_BLOCK = 1000  # samples put into the table together
_NO_MORE: tuple[int, Iterable[Entry]] = (0, ())
_TABLE = """
CREATE TABLE samples (question BLOB, row INT, place INT, p REAL, verdict INT, status TEXT, content BLOB,
                      row_at INT, row_size INT, judgment_at INT, judgment_size INT)
"""
# Questions in the order in which they first appear; of samples with the same p, the order follows from their content.
_RANKED = """
SELECT first, row, place, p, verdict, status, row_at, row_size, judgment_at, judgment_size
FROM (SELECT *, MIN(row) OVER (PARTITION BY question) AS first FROM samples)
ORDER BY first, p IS NULL, p DESC, content, row, place
"""
_BEST = "SELECT COUNT(*), SUM(best IS NULL), AVG(best) FROM (SELECT MAX(p) AS best FROM samples GROUP BY question)"


class Sample(NamedTuple):
    """A sample in its place among those of its question."""

    row: int
    place: int  # among the samples of its row; 0 if the row is one
    p: float | None  # None: not judged
    verdict: int | None
    status: Status
    rank: int | None  # from 1, equal for equal p; None: not judged
    row_span: tuple[int, int]  # where its row stands in the file of rows, and its size
    judgment_span: tuple[int, int]


class Figures(BaseModel):
    """What came of the samples."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    samples: int
    statuses: dict[str, int]
    questions: int
    unjudged_questions: Annotated[int, Field(description="Without a single judged sample.")]
    mean_p: Annotated[float | None, Field(description="Over judged samples.")]
    mean_best_p: Annotated[float | None, Field(description="Of the best, over questions with a judged sample.")]


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
            for number, (_, row, place, p, verdict, status, *spans) in enumerate(found, start=1):
                tied = group and group[-1].p == p
                rank = None if p is None else group[-1].rank if tied else number
                row_span, judgment_span = (spans[0], spans[1]), (spans[2], spans[3])
                group.append(Sample(row, place, p, verdict, Status(status), rank, row_span, judgment_span))
            yield group

    def figures(self) -> Figures:
        """Counts and means over all samples."""
        statuses = dict(self._table.execute("SELECT status, COUNT(*) FROM samples GROUP BY status ORDER BY status"))
        (mean_p,) = self._table.execute("SELECT AVG(p) FROM samples").fetchone()
        questions, unjudged, best = self._table.execute(_BEST).fetchone()
        return Figures(
            samples=sum(statuses.values()),
            statuses=statuses,
            questions=questions,
            unjudged_questions=unjudged or 0,
            mean_p=mean_p,
            mean_best_p=best,
        )

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
    samples: Samples,
    options: OutputOptions,
    judgments: Path,
    workspace: Path,
    on_bad: Callable[[Row, BadLine], None],
) -> Iterator[Ranking]:
    """Rank the samples of a file by their judgments.

    Args:
        samples: the file, and where they are in it.
        options: what tells questions apart, and the column that will be added, which no row may have.
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
            for pragma in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE", "cache_size=-2048"):
                table.execute(f"PRAGMA {pragma}")
            table.execute(_TABLE)
            with rows.open("wb") as copy:
                found = _rows(samples, options, judgments, copy.write, on_bad)
                table.execute("BEGIN")
                while block := list(islice(found, _BLOCK)):
                    table.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", block)
                table.execute("COMMIT")
            in_place = rows.stat().st_size == 0
            with (samples.source.path if in_place else rows).open("rb") as texts, judgments.open("rb") as judged:
                yield Ranking(table, texts.fileno(), judged.fileno())
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _rows(
    samples: Samples,
    options: OutputOptions,
    judgments: Path,
    copy: Callable[[bytes], object],
    on_bad: Callable[[Row, BadLine], None],
) -> Iterator[tuple[object, ...]]:
    """Rows of the table: the file and its judgments, which are in the same order, side by side."""
    by_row = groupby(entries(judgments), key=lambda entry: entry.row)
    number, judged = next(by_row, _NO_MORE)
    copied = 0
    for row in samples.source.rows():
        found = list(judged) if number == row.number else []
        record = samples.parse(row)
        if not found or samples.columns.samples is not None:
            for bad in _unjudged(samples, row, record, {entry.place for entry in found}):
                on_bad(row, bad)
        if isinstance(record, BadLine) or not found:
            continue
        number, judged = next(by_row, _NO_MORE)
        if problem := _misfit(record, options):
            on_bad(row, samples.bad(row, problem))
            continue
        at = row.at
        if at is None:
            copy(row.text)
            at, copied = copied, copied + len(row.text)
        question = _question(samples.columns, options.group, row, record)
        for entry in found:
            yield (
                *(question, entry.row, entry.place, entry.p, entry.verdict, entry.status.value, entry.content),
                *(at, len(row.text), entry.at, len(entry.text)),
            )
    if number:
        raise ResumeError(f"{judgments} does not hold the judgments of {samples.source.path}; move it away")


def _unjudged(samples: Samples, row: Row, record: dict[str, Any] | BadLine, judged: set[int]) -> Iterator[BadLine]:
    """Why a row, or samples of it, were not judged; all others were."""
    if isinstance(record, BadLine):
        yield record
        return
    name = samples.columns.samples
    asked = [None] if name is None else record.get(name)
    if judged and isinstance(asked, list) and len(judged) == len(asked):
        return  # as nearly always: what was judged need not be looked at again
    for place, case in samples.cases(row, record):
        if isinstance(case, BadLine):
            yield case
        elif place not in judged:
            raise ResumeError(f"there is no judgment of {samples.source.path}, {samples.source.unit} {row.number}")


def _misfit(record: dict[str, Any], options: OutputOptions) -> str | None:
    """Why a row that was judged cannot be written."""
    group = options.group
    if options.into in record:
        return f"{options.into}: the judgment is written to this column, and the row has it already"
    if group is not None and record.get(group) is None:
        return f"{group}: expected the question's group, found nothing"
    return None


def _question(columns: Columns, group: str | None, row: Row, record: dict[str, Any]) -> bytes:
    """What samples of one question share, as a digest. With samples in a list, each row is a question."""
    if columns.samples is not None:
        return row.number.to_bytes(8, "big")
    shared = record[group] if group is not None else [record[columns.question], record.get(columns.options or "")]
    # The same options are the same question in whatever order their keys stand.
    return hashlib.blake2b(json.dumps(shared, sort_keys=True).encode(), digest_size=16).digest()
