"""Giving memory back. Batches of all sizes leave holes in glibc's heap, which it keeps: a busy server would seem to grow."""

import ctypes
from collections.abc import Callable
from time import monotonic

_EVERY_S = 1.0  # giving back takes some milliseconds, and what was given back has to be fetched again


def heap_trimmer() -> Callable[[], None]:
    """What gives unused memory back to the system, once a second at the most; does nothing where there is no glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    last = monotonic()

    def give_back() -> None:
        nonlocal last
        if trim is not None and monotonic() - last > _EVERY_S:
            trim(0)
            last = monotonic()

    return give_back
