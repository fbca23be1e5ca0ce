"""An index whose rows are searched in several places at once, as exactly as in one.

Each place holds a range of rows and gives its own best k with their rows in the whole index. A row of the true top k is in
the top k of its range, and a score depends on the query and the row alone, so the best k of what the places gave are the
best k of the index: the same rows, scores and order, however many places there are.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from retrieval.exact_scores import Rows, Scores, Vectors, merge
from retrieval.passage import IndexMismatchError, QueryError, VectorError
from retrieval.ranker import MissingRowsError

Found = tuple[Scores, Rows]


class Span(NamedTuple):
    """Rows `start` up to and without `stop`."""

    start: int
    stop: int


class Claim(NamedTuple):
    """Which rows of which index: what the asker expects, and what a shard checks that it holds."""

    digest: str  # of the index's manifest
    span: Span


class Answer(Protocol):
    """A shard's work under way."""

    def result(self, timeout_s: float) -> Found:
        """Scores float32 [q, k'], descending, and rows int64 [q, k'] of the whole index.

        Raises:
            TimeoutError: not there yet; may be asked again.
            Exception: whatever kept the shard from answering.
        """
        ...


class Shard(Protocol):
    """One range of rows, held by one or more replicas."""

    @property
    def replicas(self) -> int: ...

    def submit(self, claim: Claim, vectors: Vectors, k: int) -> Answer:
        """Start a search; a shard that does not hold what `claim` says refuses with IndexMismatchError."""
        ...


class ShardedIndex:
    """A `VectorIndex` that asks all shards at once and waits for the last, up to a deadline. For one thread at a time."""

    def __init__(self, digest: str, shards: Sequence[tuple[Span, Shard]], dim: int, deadline_s: float) -> None:
        """Args:
        digest: of the index's manifest.
        shards: in the order of their rows, without gap or overlap.
        dim: length of a vector.
        deadline_s: how long one search waits for its slowest shard.
        """
        self._digest = digest
        self._shards = list(shards)
        self._deadline_s = deadline_s
        # Calls that missed their deadline and may still be at work. A shard with one such call in each replica is not
        # asked again before one of them ends: work does not pile up there, and callers are told at once.
        self._late: list[list[Answer]] = [[] for _ in shards]
        self.dim = dim
        self.rows = shards[-1][0].stop

    def search(self, vectors: Vectors, k: int) -> Found:
        """Scores float32 [q, k'], descending, and rows int64 [q, k'], k' = min(k, rows); ties by ascending row.

        Raises:
            QueryError, VectorError: the search itself is unusable.
            MissingRowsError: a shard failed, holds something else, or was too late.
        """
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        deadline = time.monotonic() + self._deadline_s
        asked = [self._ask(number, vectors, k) for number in range(len(self._shards))]
        nothing = np.empty((len(vectors), 0), dtype=np.float32), np.empty((len(vectors), 0), dtype=np.int64)
        parts = [nothing]
        missing, reasons = list[Span](), list[str]()
        for number, answer in enumerate(asked):
            span = self._shards[number][0]
            try:
                parts.append(self._read(number, answer, deadline, (len(vectors), min(k, span.stop - span.start))))
            except (QueryError, VectorError):
                raise
            except Exception as error:  # noqa: BLE001  whatever it is, these rows are missing; the reason is passed on
                missing.append(span)
                reasons.append(f"{type(error).__name__}: {error}")
        scores, rows = merge(parts, k)
        if missing:
            told = "; ".join(
                f"rows {start} to {stop - 1}: {reason}" for (start, stop), reason in zip(missing, reasons, strict=True)
            )
            raise MissingRowsError(f"not all rows could be searched ({told}); try again", missing, scores, rows)
        return scores, rows

    def _ask(self, number: int, vectors: Vectors, k: int) -> Answer | Exception:
        span, shard = self._shards[number]
        self._late[number] = [answer for answer in self._late[number] if not _ended(answer)]
        if len(self._late[number]) >= shard.replicas:
            return TimeoutError("still at work on an earlier search")
        try:
            return shard.submit(Claim(self._digest, span), vectors, k)
        except Exception as error:  # noqa: BLE001  one shard's trouble must not keep the others from being asked
            return error

    def _read(self, number: int, answer: Answer | Exception, deadline: float, shape: tuple[int, int]) -> Found:
        if isinstance(answer, Exception):
            raise answer
        try:
            scores, rows = answer.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError as error:
            self._late[number].append(answer)
            raise TimeoutError(f"no answer within {self._deadline_s:g} s") from error
        span = self._shards[number][0]
        if not (scores.shape == rows.shape == shape and ((rows >= span.start) & (rows < span.stop)).all()):
            raise IndexMismatchError(f"the shard gave {list(rows.shape)} rows that are not all its own")
        return scores, rows


def spans(rows: int, parts: int) -> list[Span]:
    """Divide rows into `parts` ranges whose sizes differ by one at most, in order.

    Raises:
        ValueError: fewer than one part, or more parts than rows.
    """
    if not 1 <= parts <= rows:
        raise ValueError(f"{parts} shards of {rows} rows; expected 1 to {rows}")
    return [Span(rows * part // parts, rows * (part + 1) // parts) for part in range(parts)]


def _ended(answer: Answer) -> bool:
    try:
        answer.result(0.0)
    except TimeoutError:
        return False
    except Exception:  # noqa: BLE001  it was reported when it was late; what matters is that the shard is free again
        return True
    return True
