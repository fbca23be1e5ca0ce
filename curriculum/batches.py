"""Which examples a step learns from: pure functions of counts, step and seed."""

from collections.abc import Sequence
from itertools import zip_longest
from random import Random

from curriculum.pool.example import Example


def batch_of(count: int, size: int, step: int, seed: int) -> list[int]:
    """Indexes of what a step takes of `count` things: each once before any comes again, every round in an order of its own."""
    rounds: dict[int, list[int]] = {}
    picked = []
    for place in range(step * size, (step + 1) * size):
        number = place // count
        if number not in rounds:
            rounds[number] = list(range(count))
            Random(f"{seed} {number}").shuffle(rounds[number])  # noqa: S311 - an order, not a secret
        picked.append(rounds[number][place % count])
    return picked


def balanced_batch(examples: Sequence[Example], size: int, step: int, seed: int) -> list[Example]:
    """What a step takes of the examples, half of either label in turn: a batch of one label would teach the label.

    Of the rarer label examples come again sooner. If there is only one label, it is all there is.
    """
    by_label = [[example for example in examples if example.label == label] for label in (1, 0)]
    parts = [part for part in by_label if part]
    drawn = []
    for number, part in enumerate(parts):
        share = size // len(parts) + (number < size % len(parts))
        drawn.append([part[index] for index in batch_of(len(part), share, step, seed)])
    return [example for pair in zip_longest(*drawn) for example in pair if example is not None]


def steps_of(examples: int, size: int, epochs: int, most: int | None) -> int:
    """How many steps an iteration has: so many that each example is taken `epochs` times, at least one, at most `most`."""
    whole = max(1, examples * epochs // size) if examples else 0
    return whole if most is None else min(whole, most)
