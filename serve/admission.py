"""How much work is let in: what cannot be done soon is refused at once, with the time to come back."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from serve.callers import ANONYMOUS, Caller
from serve.errors import ServiceError
from serve.fair_places import FairPlaces
from serve.pace import Pace

_LEAD = 3  # a caller holds at most this many times what stays free, so that there is always room for another one


class Admission:
    """Counts cases that are admitted and not finished, all together and by caller. Used on the event loop only.

    A caller with a key may hold three times as many as stay free: three quarters of the limit by itself, less the more others
    there are, and never the last ones. The rule is the dynamic threshold of Choudhury and Hahne (IEEE/ACM Transactions on
    Networking 6(2), 1998), which shares the memory of a switch among its ports. Without keys all are one caller, who may hold
    everything.
    """

    def __init__(self, limit: int, places: FairPlaces, pace: Pace) -> None:
        self._limit = limit
        self._places = places
        self._pace = pace
        self._held = Counter[str]()
        self.in_flight = 0
        self.draining = False
        self.refused = Counter[str]()  # cases, by why

    def largest(self, caller: Caller) -> int:
        """Cases that this caller could have admitted together if nothing else were in flight."""
        if caller.name == ANONYMOUS:
            return self._limit
        return max(1, self._limit * _LEAD // (_LEAD + 1))

    @contextmanager
    def admit(self, cases: int, caller: Caller, within_s: float) -> Iterator[None]:
        """Let `cases` in for as long as the block runs.

        Args:
            cases: how many, all or none.
            caller: who asks.
            within_s: seconds until the answer is of no use.

        Raises:
            ServiceError: 503 with Retry-After if they are too many for now, if the first of them cannot be begun in time, or if
                the service is about to stop.
        """
        self._check(cases, caller, within_s)
        self.in_flight += cases
        self._held[caller.name] += cases
        try:
            yield
        finally:
            self.in_flight -= cases
            self._held[caller.name] -= cases
            if not self._held[caller.name]:
                del self._held[caller.name]

    def _check(self, cases: int, caller: Caller, within_s: float) -> None:
        if self.draining:
            self.refused["draining"] += cases
            raise draining()
        held, free = self._held[caller.name], self._limit - self.in_flight - cases
        if free < 0:
            detail = f"{self.in_flight} cases are in flight and {cases} more exceed the limit of {self._limit}"
            raise self._refusal("full", cases, detail, self._pace.seconds_for(-free, self._places.taken))
        # One case by itself is let in wherever there is room: a small limit must not shut a caller out.
        if caller.name != ANONYMOUS and held + cases > max(1, _LEAD * free):
            detail = f"{held} cases of this key are in flight and {cases} more exceed its share of the limit of {self._limit}"
            too_many = (held + cases - _LEAD * free + _LEAD) // (_LEAD + 1)
            raise self._refusal("share", cases, detail, self._pace.seconds_for(too_many, self._places.taken))
        ahead = self._places.ahead_of(caller.name)
        wait_s = self._pace.seconds_for(ahead, self._places.taken) if ahead and self._pace.known else 0.0
        if wait_s > within_s:
            detail = f"the first case would begin in about {wait_s:.0f} s, and the deadline is in {within_s:g} s"
            raise self._refusal("deadline", cases, detail, wait_s - within_s)

    def _refusal(self, why: str, cases: int, detail: str, seconds: float) -> ServiceError:
        self.refused[why] += cases
        wait = {"Retry-After": str(ceil(self._pace.bounded(seconds)))}
        return ServiceError(503, "overloaded", "The service is busy", detail, wait)


def draining() -> ServiceError:
    """What new work is told while the service finishes what it has. Another one is likely there in a moment."""
    detail = "the service finishes what is under way and then stops"
    return ServiceError(503, "draining", "The service is about to stop", detail, {"Retry-After": "5"})
