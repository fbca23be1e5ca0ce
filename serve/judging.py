"""The one way from a route to a judgment."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from configs.settings import ServeSettings
from serve.admission import Admission, draining
from serve.callers import ANONYMOUS, Caller
from serve.engine_health import EngineHealth, UnhealthyError
from serve.errors import ServiceError
from serve.fair_places import FairPlaces
from serve.flights import Flights
from serve.judging_stats import JudgingStats
from serve.pace import Pace
from serve.request_ids import in_the_log, request_id
from serve.served_judge import ServedJudge
from serve.stores import About, Asked, Given, Stores
from serve.tracing import Tracing
from serve.watching import Admitted, Silence, Told, watched
from verifier.types import Case, Judgment, Status

T = TypeVar("T")
_log = logging.getLogger(__name__)
#: What callers are told of failures whose reasons name addresses, files or classes.
_PUBLIC = {Status.ENGINE_FAILED: "the judge's engine failed", Status.RETRIEVAL_FAILED: "a search failed"}


class JudgingService:
    """Lets cases in and has them judged: cache, admission, fair places, coalescing, deadlines, audit. On the event loop only.

    Whoever stops waiting, because its task is cancelled or its deadline passes, gives up its share in what is under way.
    """

    def __init__(
        self,
        judge: ServedJudge,
        settings: ServeSettings,
        stores: Stores | None = None,
        *,
        coherence: ServedJudge | None = None,
        tracing: Tracing | None = None,
        health: EngineHealth | None = None,
    ) -> None:
        """Args:
        judge: of correctness.
        settings: of the service.
        stores: what was judged and is kept; None: nothing is.
        coherence: judge of coherence, over the same engine and retriever; None: nobody judges it here.
        tracing: told every episode.
        health: of the engine in this process; None: there is none, or nobody asks.
        """
        self.judge = judge
        self.coherence = coherence
        self.stores = stores or Stores()
        self.stats = JudgingStats()
        self._pace = Pace(settings.retry_after_s, settings.max_retry_after_s)
        self.places = FairPlaces(judge.max_together)
        self.admission = Admission(settings.max_queue, self.places, self._pace)
        self._flights = Flights(self.places, self._pace, self.stats, self.stores.keep, tracing=tracing, health=health)
        self._health = health
        self._max_batch = settings.max_batch

    @property
    def largest(self) -> int:
        """Cases that fit into one request, if keys set no narrower bound, see `largest_of`."""
        return self.largest_of(Caller(ANONYMOUS))

    def largest_of(self, caller: Caller) -> int:
        """Cases that fit into one request of this caller's: one that never fits must not be told to come back."""
        return min(self._max_batch, self.admission.largest(caller))

    async def start(self) -> None:
        """Compute what all prompts share before the first case comes."""
        await self.judge.warm_up()
        if self.coherence is not None:
            await self.coherence.warm_up()

    async def check_engine(self) -> None:
        """Return if there is no reason to think that every case would fail.

        Raises:
            ServiceError: 503; the engine failed at many cases in a row, and at a text of our own.
        """
        if self._health is None:
            return
        try:
            await self._health.check()
        except UnhealthyError as error:
            _log.error("not ready: %s", error)
            raise ServiceError(
                503, "unavailable", "No judgment can be given", _PUBLIC[Status.ENGINE_FAILED], {"Retry-After": "5"}
            ) from error

    def begin_drain(self) -> None:
        """Refuse new work from now on; what is under way goes on."""
        self.admission.draining = True

    @property
    def draining(self) -> bool:
        """The service is about to stop."""
        return self.admission.draining

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return self.admission.in_flight == 0

    async def aclose(self) -> None:
        """End what is still under way and close the judge; what judges coherence shares all that there is to close."""
        await self._flights.aclose()
        await self.judge.aclose()

    async def judge_all(
        self, cases: Sequence[Case], *, caller: Caller, seed: int | None = None, deadline_s: float | None = None
    ) -> list[Judgment]:
        """Judge whether traces are free of errors: `answer_all` with that question about each case."""
        return await self.answer_all([Asked(case, seed) for case in cases], caller=caller, deadline_s=deadline_s)

    async def answer_all(
        self,
        asked: Sequence[Asked],
        *,
        caller: Caller,
        deadline_s: float | None = None,
        watch: Callable[[Told], None] | None = None,
    ) -> list[Judgment]:
        """Answer questions about cases independently of one another. Each ends in a judgment, in order; what fails is a status.

        They are let in together or not at all. Equal ones in flight, in this request or another, are one episode.

        Args:
            asked: what to judge.
            caller: who asks.
            deadline_s: for all of it, if it is sooner than the judge's own.
            watch: told what happens in their episodes, also what happened before they were asked for.

        Raises:
            ServiceError: 413 if they can never fit into one request; 503 with Retry-After if they do not fit now, cannot be
                begun before the deadline, or if the service is about to stop; 501 if nobody judges that here.
        """
        judges = [self._judge_of(one.about) for one in asked]
        if len(asked) > (largest := self.largest_of(caller)):
            detail = f"{len(asked)} cases; at most {largest} fit into one request"
            raise ServiceError(413, "batch-too-large", "The batch is too large", detail)
        if self.draining:
            raise draining()
        allowed_s = min(filter(None, (self.judge.deadline_s, deadline_s)))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + allowed_s
        seeds = [judge.seed if one.seed is None else one.seed for one, judge in zip(asked, judges, strict=True)]
        found = await _together(
            [
                self.stores.recall(judge, one.case, seed, one.about, left_s=allowed_s)
                for one, judge, seed in zip(asked, judges, seeds, strict=True)
            ]
        )
        unknown = found.count(None)
        self.stats.cached += len(asked) - unknown
        given = [None if known is None else Given(known, cached=True) for known in found]
        if unknown:
            places = [place for place, known in enumerate(found) if known is None]
            with self.admission.admit(unknown, caller, allowed_s):
                if watch is not None:
                    watch(Admitted(self.admission.in_flight))
                asking = [
                    self._flights.judge(
                        judges[place],
                        asked[place].case,
                        seeds[place],
                        asked[place].about,
                        caller=caller.name,
                        deadline=deadline,
                        watch=watch,
                    )
                    for place in places
                ]
                for place, judgment in zip(places, await _together(asking), strict=True):
                    given[place] = Given(_for_callers(judgment))
        answers = [one for one in given if one is not None]
        judgments = await self.stores.record(
            asked, answers, self.judge, caller, request_id=request_id(), left_s=deadline - loop.time()
        )
        self.stats.given.update(judgment.status for judgment in judgments)
        return judgments

    def watch(
        self,
        case: Case,
        *,
        caller: Caller,
        seed: int | None = None,
        deadline_s: float | None = None,
    ) -> AsyncGenerator[Told | Silence | Judgment, None]:
        """Judge a case and tell what happens, as it happens; the judgment comes last. One from the cache comes alone.

        Closing the iterator early gives the case up.

        Raises:
            ServiceError: as `judge_all`, before anything else is told.
        """

        async def judging(tell: Callable[[Told], None]) -> Judgment:
            [judgment] = await self.answer_all([Asked(case, seed)], caller=caller, deadline_s=deadline_s, watch=tell)
            return judgment

        return watched(judging)

    def _judge_of(self, about: About) -> ServedJudge:
        if about == "correctness":
            return self.judge
        if self.coherence is None:
            detail = "this service has no judge for coherence"
            raise ServiceError(501, "no-such-question", "The question cannot be asked here", detail)
        return self.coherence


def _for_callers(judgment: Judgment) -> Judgment:
    """The judgment without what its failure tells of the service's insides; that is logged."""
    if (public := _PUBLIC.get(judgment.status)) is None:
        return judgment
    _log.warning("case %s: %s: %s", judgment.case_digest, judgment.status, judgment.detail)
    return judgment.model_copy(update={"detail": f"{public}; {in_the_log()}"})


async def _together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; if one fails, which is a fault of ours, the others are given up."""
    if len(work) == 1:  # most requests; without the cost of a task
        return [await work[0]]
    tasks = list(map(asyncio.ensure_future, work))
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
