"""The pool: labelled traces in an order that seed and content decide, drawn once each and in balance.

The order is made once, from hashes, and a draw moves a mark along it. So the state is a number, and every machine draws the same.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curriculum.pool.dedupe import distinct
from curriculum.pool.errors import PoolError
from curriculum.pool.example import Example
from curriculum.pool.order import Keyed, capped, mixed, pairs


class StateError(PoolError):
    """A state that does not belong to this pool; the message says what differs and what to do."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Examples of one source."""

    right: int = 0  # labelled 1
    wrong: int = 0
    questions: int = 0
    drawable: int = 0  # how many can be drawn in all: twice the rarer label
    drawn: int = 0
    duplicates: int = 0  # left out: the text is another example's too
    contradictory: int = 0  # left out: the text has the other label too
    over_cap: int = 0  # left out: the question has enough others


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    seed: int
    digest: str
    drawn: Annotated[int, Field(ge=0, multiple_of=2)]


class Pool:
    """Labelled traces, each drawn once.

    Traces are drawn in pairs, a right one and a wrong one of the same source, so that every even number of them from the start
    is balanced and a source tells nothing of the label. Within a source and label every question has its turn before any has
    its second.
    """

    def __init__(
        self,
        examples: Iterable[Example],
        seed: int,
        *,
        weights: Mapping[str, float] | None = None,
        per_question: int | None = None,
    ) -> None:
        """Clean the examples and decide their order. The order in which they are given does not matter.

        Args:
            examples: from all sources. Of equal texts one is kept; texts with both labels are left out.
            seed: of the order.
            weights: share of each source in what is drawn, for as long as it lasts; they need not add up to 1. None: as much
                as each source has, so that all last to the end.
            per_question: most traces of one question, half of them of each label where there are enough. None: all.

        Raises:
            PoolError: a source without a weight, a number that is not positive, or two different examples with one id.
        """
        if per_question is not None and per_question < 1:
            raise PoolError(f"per_question is {per_question}; expected 1 or more, or none")
        found = distinct(examples)
        entries = [Keyed(key, example) for key, example in found.by_key.items()]
        _refuse_equal_ids(entries)
        kept = entries if per_question is None else capped(entries, per_question, seed)
        held: dict[str, list[Keyed]] = {}
        for entry in kept:
            held.setdefault(entry.example.source, []).append(entry)
        paired = {name: pairs(own, seed) for name, own in sorted(held.items())}
        shares = {name: len(own) for name, own in paired.items()} if weights is None else _checked(weights, paired)
        self._order = tuple(example for pair in mixed(paired, shares) for example in pair)
        self._drawn = 0
        self._seed = seed
        self._digest = _digest(kept, shares)
        over_cap = Counter(entry.example.source for entry in entries)
        over_cap.subtract(entry.example.source for entry in kept)
        self._counts = {
            name: _counted(held.get(name, ()), 2 * len(paired.get(name, ())))
            for name in sorted({*held, *found.duplicates, *found.contradictory, *over_cap})
        }
        for name, counts in self._counts.items():
            self._counts[name] = replace(
                counts,
                duplicates=found.duplicates[name],
                contradictory=found.contradictory[name],
                over_cap=over_cap[name],
            )

    def draw(self, count: int) -> list[Example]:
        """The next `count` examples, half of each label; fewer when the pool is spent, and `left` is 0 then.

        Raises:
            ValueError: `count` is odd or negative.
        """
        if count < 0 or count % 2:
            raise ValueError(
                f"cannot draw {count} examples: they come in pairs, one of each label; ask for an even number"
            )
        drawn = self._order[self._drawn : self._drawn + count]
        self._drawn += len(drawn)
        return list(drawn)

    @property
    def examples(self) -> Sequence[Example]:
        """All that can be drawn, in the order in which it is."""
        return self._order

    @property
    def left(self) -> int:
        """Examples that can still be drawn. Those without a partner of the other label are not among them."""
        return len(self._order) - self._drawn

    def counts(self) -> Mapping[str, Counts]:
        """What there is of each source, and how much of it was drawn; sources in the order of their names."""
        drawn = Counter(example.source for example in self._order[: self._drawn])
        return {name: replace(counts, drawn=drawn[name]) for name, counts in self._counts.items()}

    def state(self) -> Mapping[str, Any]:
        """What `restore` needs to go on from here, fit for JSON: four fields, whatever the pool's size."""
        return _State(version=1, seed=self._seed, digest=self._digest, drawn=self._drawn).model_dump()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from where a pool with the same examples, seed, weights and cap was.

        Raises:
            StateError: the state is another pool's, or none at all. The pool stays where it was.
        """
        try:
            kept = _State.model_validate(dict(state))
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            raise StateError(f"not the state of a pool: {faults}") from error
        if kept.seed != self._seed:
            raise StateError(
                f"the state is of a pool with seed {kept.seed}, this one has seed {self._seed}; set pool.seed back to "
                f"{kept.seed} to go on, or start a new run"
            )
        if kept.digest != self._digest or kept.drawn > len(self._order):
            raise StateError(
                "the state is of a pool with other examples, weights, overlap packs or per_question; give this run the sources "
                "and settings that it began with (its run folder keeps them), or start a new run"
            )
        self._drawn = kept.drawn


def _refuse_equal_ids(entries: Sequence[Keyed]) -> None:
    seen: dict[str, Example] = {}
    for _, example in entries:
        other = seen.setdefault(example.case.id, example)
        if other is not example:
            raise PoolError(
                f"two examples have the id {example.case.id!r}, one of source {other.source!r}, one of {example.source!r}; ids "
                "must differ, because outcomes are kept by them"
            )


def _checked(weights: Mapping[str, float], sources: Iterable[str]) -> Mapping[str, float]:
    for name in sources:
        if name not in weights:
            raise PoolError(f"source {name!r} has no weight; give every source one, or none any")
        if not 0 < weights[name] < math.inf:
            raise PoolError(f"the weight of source {name!r} is {weights[name]}; expected a number above 0")
    return {name: weights[name] for name in sources}


def _counted(entries: Sequence[Keyed], drawable: int) -> Counts:
    right = sum(entry.example.label for entry in entries)
    questions = len({entry.example.question_id for entry in entries})
    return Counts(right, len(entries) - right, questions, drawable)


def _digest(entries: Iterable[Keyed], shares: Mapping[str, float]) -> str:
    """SHA-256 of all that decides what is drawn besides the seed."""
    lines = sorted(
        json.dumps([key, one.label, one.source, one.question_id, one.case.id, one.generator]) for key, one in entries
    )
    return hashlib.sha256("\n".join([json.dumps(shares, sort_keys=True), *lines]).encode()).hexdigest()
