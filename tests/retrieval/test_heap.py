import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from retrieval import heap
from retrieval.heap import heap_trimmer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and trims the heap of glibc")


def resident_mib() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def test_holes_are_given_back_once_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_EVERY_S", 0.0)
    give_back = heap_trimmer()
    pieces = [np.ones(12_000, dtype=np.uint8) for _ in range(12_000)]  # too small for a mapping of their own
    kept = pieces[::12]  # between the holes, so that the end of the heap cannot come down by itself
    del pieces
    gc.collect()
    before = resident_mib()
    give_back()
    assert before - resident_mib() > 60
    assert len(kept) == 1000


def test_nothing_is_given_back_before_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        trimmed = 0

        def malloc_trim(self, _: int) -> None:
            self.trimmed += 1

    library = Library()
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda _: library)
    now = [0.0]
    monkeypatch.setattr(heap, "monotonic", lambda: now[0])
    give_back = heap_trimmer()
    for now[0] in (0.5, 1.5, 2.0, 2.6):
        give_back()
    assert library.trimmed == 2
