"""Equal cases that are judged at the same time are judged once: one episode, and everybody who waits for it."""

import asyncio
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

from serve.engine_health import EngineHealth
from serve.fair_places import FairPlaces, Ticket
from serve.judging_stats import JudgingStats
from serve.pace import Pace
from serve.served_judge import ServedJudge
from serve.tracing import Tracing
from verifier.events import Event, Watch
from verifier.types import Case, Judgment, Status, StopReason

Key = tuple[str, str, int]  # judge, content, seed
Keep = Callable[[Judgment, str], None]

# The judge itself ends at the deadline and tells how far it came. What does not even answer then is left behind.
_GRACE_S = 0.25
_SOON_S = 0.05  # a new episode is not worth beginning for less


class Flight:
    """One episode under way."""

    __slots__ = ("_told", "_watches", "askers", "deadline", "key", "seed", "task", "ticket")

    def __init__(self, key: Key, deadline: float, fly: Callable[["Flight"], Coroutine[Any, Any, Judgment]]) -> None:
        self.key = key
        self.seed = key[2]
        self.ticket: Ticket = asyncio.get_running_loop().create_future()
        self.askers = 0
        self.deadline = deadline  # of the most patient asker
        self._told: list[Event] = []
        self._watches: list[Watch] = []
        self.task = asyncio.create_task(fly(self))

    def tell(self, event: Event) -> None:
        """Something happened in the episode."""
        self._told.append(event)
        for watch in self._watches:
            watch(event)

    def watch(self, watch: Watch) -> None:
        """Tell a watcher what happened so far, and what will."""
        for event in self._told:
            watch(event)
        self._watches.append(watch)


class Flights:
    """All episodes under way, by judge, content and seed. Used on the event loop only."""

    def __init__(
        self,
        places: FairPlaces,
        pace: Pace,
        stats: JudgingStats,
        keep: Keep,
        *,
        tracing: Tracing | None = None,
        health: EngineHealth | None = None,
    ) -> None:
        """Args:
        places: where episodes wait for their turn.
        pace: told how long each took.
        stats: told what happens.
        keep: told every judgment that was made, once, and the question about it.
        tracing: told every episode.
        health: told how each episode ended.
        """
        self._places = places
        self._pace = pace
        self._stats = stats
        self._health = health
        self._keep = keep
        self._tracing = tracing or Tracing()
        self._flights: dict[Key, Flight] = {}

    async def judge(
        self,
        judge: ServedJudge,
        case: Case,
        seed: int,
        about: str,
        *,
        caller: str,
        deadline: float,
        watch: Watch | None = None,
    ) -> Judgment:
        """Judge a case, in the episode of an equal one if there is one.

        An asker who leaves is missed by nobody, but the last one takes the episode along.

        Args:
            judge: who judges.
            case: what is judged.
            seed: of the sampling.
            about: the question that this judge asks, for who keeps the judgment.
            caller: in whose name a place is waited for.
            deadline: time of the event loop by which this asker wants an answer, of whatever kind.
            watch: told what happens in the episode, also what happened before.
        """
        key = (judge.judge_id, case.digest, seed)
        while True:
            flight = self._flights.get(key)
            if flight is None:
                flight = self._begin(key, judge, case, about, deadline)
            else:
                self._stats.coalesced += 1
            judgment = await self._wait(flight, judge, case, caller=caller, deadline=deadline, watch=watch)
            # It may have been somebody else's deadline that ended the episode.
            now = asyncio.get_running_loop().time()
            if judgment.status is not Status.TIMEOUT or max(flight.deadline, now + _SOON_S) >= deadline:
                return judgment if judgment.id == case.id else judgment.model_copy(update={"id": case.id})

    async def aclose(self) -> None:
        """End all episodes."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, key: Key, judge: ServedJudge, case: Case, about: str, deadline: float) -> Flight:
        flight = Flight(key, deadline, lambda flight: self._fly(flight, judge, case, about))
        self._flights[key] = flight
        flight.watch(self._stats.told)
        return flight

    async def _wait(
        self, flight: Flight, judge: ServedJudge, case: Case, *, caller: str, deadline: float, watch: Watch | None
    ) -> Judgment:
        if not flight.ticket.done():  # each asker in its own name, so that nobody waits in somebody else's line
            flight.deadline = max(flight.deadline, deadline)
            self._places.line_up(caller, flight.ticket)
        if watch is not None:
            flight.watch(watch)
        asked = asyncio.get_running_loop().time()
        flight.askers += 1
        try:
            async with asyncio.timeout_at(deadline + (_GRACE_S if flight.deadline <= deadline else 0.0)):
                return await asyncio.shield(flight.task)
        except TimeoutError:
            what = "verdict" if flight.ticket.done() else "place in the engine"
            detail = f"no {what} within {round(deadline - asked, 2):g} s"
            return Judgment.unjudged(
                case, Status.TIMEOUT, StopReason.DEADLINE, detail, seed=flight.seed, judge_id=judge.judge_id
            )
        finally:
            flight.askers -= 1
            self._places.leave(caller, flight.ticket)
            if not flight.askers and not flight.task.done():
                self._stats.cancelled += 1
                self._end(flight)
                flight.task.cancel()

    async def _fly(self, flight: Flight, judge: ServedJudge, case: Case, about: str) -> Judgment:
        lined_up = perf_counter()
        try:
            try:
                await flight.ticket
            except asyncio.CancelledError:
                if flight.ticket.done() and not flight.ticket.cancelled():
                    self._places.give_back()
                raise
            self._stats.queued(perf_counter() - lined_up)
            try:
                judgment = await self._judge(flight, judge, case)
            finally:
                self._places.give_back()
            self._keep(judgment, about)
            return judgment
        finally:
            self._end(flight)

    async def _judge(self, flight: Flight, judge: ServedJudge, case: Case) -> Judgment:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        left_s = max(flight.deadline - begun, 0.001)
        with self._tracing.episode() as span:
            flight.watch(span.told)
            judgment = await judge.verify(case, flight.seed, deadline_s=left_s, watch=flight.tell)
            span.ended(judgment)
        self._pace.observe(loop.time() - begun)
        self._stats.judged(judgment)
        if self._health is not None:
            self._health.saw(judgment.status)
        return judgment

    def _end(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
