"""Ids of judgments in the audit log: 26 characters, in the order in which they were given out.

They are ULIDs (https://github.com/ulid/spec): 48 bits of milliseconds, 80 of chance, in Crockford's base 32. Sorted as text they
are sorted by time, so a log in which they were appended can be searched by halves and needs no index.
"""

import re
import secrets
from collections.abc import Callable

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_CHANCE_BITS = 80
LENGTH = 26
PATTERN = r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$"  # as JSON schema wants it
_VALID = re.compile(PATTERN.strip("^$"))


class JudgmentIds:
    """Gives out ids, each greater than all before, whatever the clock does."""

    def __init__(self, clock: Callable[[], float], last: str | None = None) -> None:
        """Args:
        clock: seconds since 1970.
        last: the greatest id that was ever given out.
        """
        self._clock = clock
        self._last = _decode(last) if last else -1

    def next(self) -> str:
        """A new id."""
        fresh = (max(0, int(self._clock() * 1000)) << _CHANCE_BITS) | secrets.randbits(_CHANCE_BITS)
        # A second id in one millisecond, or after the clock went back, follows the last one.
        self._last = fresh if fresh >> _CHANCE_BITS > self._last >> _CHANCE_BITS else self._last + 1
        return _encode(self._last)


def is_judgment_id(text: str) -> bool:
    """Whether the text has the form of an id."""
    return bool(_VALID.fullmatch(text))


def _encode(value: int) -> str:
    return "".join(_DIGITS[(value >> shift) & 31] for shift in range(5 * (LENGTH - 1), -1, -5))


def _decode(text: str) -> int:
    value = 0
    for digit in text:
        value = value << 5 | _VALUES[digit]
    return value
