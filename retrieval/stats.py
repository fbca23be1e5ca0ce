"""Counts of what a search engine does, cheap enough to be kept on every search and readable at any moment."""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol, runtime_checkable

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """How many observations lie at or below each bound, and their sum. Observed by one thread, read by any."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Observe the seconds that the block takes, if it ends well."""
        started = perf_counter()
        yield
        self.observe(perf_counter() - started)

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """(bound, observations at or below it), the last bound infinite."""
        total, rows = 0, list[tuple[float, int]]()
        for bound, count in zip((*self.bounds, float("inf")), tuple(self._counts), strict=True):
            total += count
            rows.append((bound, total))
        return rows


@dataclass(slots=True)
class EngineStats:
    """What a search engine did since it was opened."""

    searches: int = 0  # queries asked for
    cached: int = 0  # answered from the cache
    coalesced: int = 0  # joined to the same query in flight
    refused: int = 0  # turned away because the queue was full
    abandoned: int = 0  # taken out of the queue because nobody waited for them any more: client gone or deadline passed
    late: int = 0  # requests whose deadline passed before their answer
    failed: int = 0  # ended in an error of the ranker or the text store
    batch_size: Histogram = field(default_factory=lambda: Histogram(SIZES))
    #: Seconds a query waited, and a batch took, per stage. A ranker with stages of its own adds them.
    stages: dict[str, Histogram] = field(default_factory=lambda: {s: Histogram() for s in ("queue", "rank", "read")})
    lock: threading.Lock = field(default_factory=threading.Lock)  # for counters that several threads raise


@runtime_checkable
class Staged(Protocol):
    """A ranker or an index that says where its time goes."""

    @property
    def stages(self) -> Mapping[str, Histogram]: ...
