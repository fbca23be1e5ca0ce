"""The pool: labelled traces in an order that seed and content decide, drawn once each and in balance.

An order, not a random generator, is what is kept: the order is made once, from hashes, and a draw moves a mark along it. So
the state is a number, and every machine draws the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curriculum.pool.example import Example


class StateError(ValueError):
    """A state that does not belong to this pool; the message says what differs and what to do."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a pool holds of one source."""

    right: int  # traces labelled 1
    wrong: int
    questions: int
    pairs: int  # of a right and a wrong trace: what can be drawn in all
    drawn: int  # pairs that were drawn


class Pool:
    """Labelled traces, each drawn once.

    Traces are drawn in pairs, a right one and a wrong one of the same source, so that every even number of examples in a row
    from the start is balanced, and neither the label nor the source tells anything of the other. Within a source and label
    every question has its turn before any has its second.
    """

    def __init__(
        self,
        examples: Iterable[Example],
        seed: int,
        *,
        weights: Mapping[str, float] | None = None,
        per_question: int | None = None,
    ) -> None:
        """Clean the examples and decide their order; the order in which they are given does not matter.

        Args:
            examples: from all sources. Of equal texts one is kept; texts with both labels are dropped.
            seed: of the order.
            weights: share of each source in what is drawn, for as long as it lasts; shares need not add up to 1. None: as
                many pairs as each source has, so that all last to the end.
            per_question: most traces of one question, half of them of each label where there are enough. None: all.

        Raises:
            ValueError: a weight for no source, a source without weight, or a weight that is not positive.
        """
        raise NotImplementedError

    def draw(self, count: int) -> list[Example]:
        """The next `count` examples, half of each label; fewer when the pool is spent. None comes twice.

        Raises:
            ValueError: `count` is odd or negative.
        """
        raise NotImplementedError

    @property
    def left(self) -> int:
        """Examples that can still be drawn. Those without a partner of the other label are not among them."""
        raise NotImplementedError

    def counts(self) -> Mapping[str, Counts]:
        """What each source holds and how much of it was drawn."""
        raise NotImplementedError

    @property
    def spent(self) -> Sequence[str]:
        """Sources that have nothing left to draw."""
        raise NotImplementedError

    def state(self) -> Mapping[str, Any]:
        """What `restore` needs to go on from here, fit for JSON: a few fields, whatever the pool's size."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from where a pool with the same examples, seed, weights and cap was.

        Raises:
            StateError: the state is another pool's, or none.
        """
        raise NotImplementedError
