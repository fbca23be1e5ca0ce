"""The order in which examples are drawn: pure functions of seed and content.

Hashes stand in for a random generator: they do not depend on the order of the input, on the platform or on a library's release.
"""

import hashlib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from curriculum.pool.example import Example


class Keyed(NamedTuple):
    """An example and the key of its text."""

    key: str
    example: Example


class _Turn(NamedTuple):
    turn: int  # 0 for the first of its group
    chance: bytes
    keyed: Keyed


def pairs(entries: Iterable[Keyed], seed: int) -> list[tuple[Example, Example]]:
    """Two examples each, one of either label in either order; as many as the rarer label allows.

    Of each label every question has its turn before any has its second, and every round has an order of its own.
    """
    by_label: tuple[list[Keyed], list[Keyed]] = ([], [])
    for entry in entries:
        by_label[entry.example.label].append(entry)
    wrong, right = (sorted(_turns(ones, seed)) for ones in by_label)
    # Which of the two comes first must tell nothing either; the parity of one of their hashes is a fair coin.
    return [
        (one.keyed.example, other.keyed.example) if one.chance[-1] % 2 else (other.keyed.example, one.keyed.example)
        for one, other in zip(wrong, right, strict=False)
    ]


def capped(entries: Iterable[Keyed], most: int, seed: int) -> list[Keyed]:
    """At most so many of each question, half of them of each label where there are enough."""
    by_question: dict[tuple[str, str], list[_Turn]] = {}
    for turn in _turns(entries, seed):
        by_question.setdefault(turn.keyed.example.question, []).append(turn)
    return [turn.keyed for turns in by_question.values() for turn in sorted(turns)[:most]]


def mixed(
    by_source: Mapping[str, Sequence[tuple[Example, Example]]], weights: Mapping[str, float]
) -> list[tuple[Example, Example]]:
    """The pairs of all sources in one sequence, so that every start of it has the sources in proportion to the weights.

    Seats are given away one by one as by Webster and Sainte-Laguë: the next pair is of the source that lags most. A source that
    has none left is passed over; the others share what follows.
    """
    waiting = [(0.5 / weights[name], name, 0) for name, own in by_source.items() if own]
    heapq.heapify(waiting)
    sequence = []
    while waiting:
        _, name, taken = heapq.heappop(waiting)
        sequence.append(by_source[name][taken])
        if taken + 1 < len(by_source[name]):
            heapq.heappush(waiting, ((taken + 1.5) / weights[name], name, taken + 1))
    return sequence


def _turns(entries: Iterable[Keyed], seed: int) -> list[_Turn]:
    """Each entry with its turn among those of its question and label."""
    groups: dict[tuple[tuple[str, str], int], list[tuple[bytes, Keyed]]] = {}
    for entry in entries:
        group = groups.setdefault((entry.example.question, entry.example.label), [])
        group.append((hashlib.blake2b(f"{seed} {entry.key}".encode(), digest_size=16).digest(), entry))
    return [
        _Turn(turn, chance, entry)
        for group in groups.values()
        for turn, (chance, entry) in enumerate(sorted(group, key=lambda one: one[0]))
    ]
