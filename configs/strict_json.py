"""JSON as we accept it from files, servers and callers: whatever is wrong with it is a `ValueError`."""

import json
from typing import Any

#: In one object of what strangers send: each one that is not known is a fault to be told, and costs time.
MOST_KEYS = 10_000


class RepeatedKeyError(ValueError):
    """An object has a key twice: nobody can know which of the values was meant."""

    def __init__(self, key: str) -> None:
        """`key` is kept as text that can be written down, whatever was sent."""
        self.key = key.encode(errors="replace").decode()
        super().__init__(f"the key {self.key!r} is there twice")


def parse(data: bytes | str) -> Any:
    """The value that `data` writes down; of a key that is there twice, the last value.

    Raises:
        ValueError: not JSON, not Unicode, a number of thousands of digits, or nested too deeply to be read.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parse_unique(data: bytes | str) -> Any:
    """As `parse`, without keys that are there twice; for what strangers send. It is read once all the same.

    Raises:
        RepeatedKeyError: an object has a key twice.
        ValueError: as `parse`, or an object has more than `MOST_KEYS` keys.
    """
    try:
        return json.loads(data, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        raise RepeatedKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    if len(found) > MOST_KEYS:
        raise ValueError(f"an object has more than {MOST_KEYS} keys")
    return found
