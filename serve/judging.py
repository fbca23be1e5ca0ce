"""The one way from a route to a judgment."""

import asyncio
from collections.abc import Sequence

from configs.settings import ServeSettings
from serve.admission import Admission
from serve.callers import Caller
from serve.errors import ServiceError
from serve.stores import Given, Stores
from verifier.judge import Judge
from verifier.types import Case, Judgment


class JudgingService:
    """Lets cases in and has them judged. Used on the event loop only."""

    def __init__(self, judge: Judge, settings: ServeSettings, stores: Stores | None = None) -> None:
        self.judge = judge
        self.stores = stores or Stores()
        self.admission = Admission(settings.max_queue, settings.retry_after_s)
        # One that never fits must not be told to come back.
        self.largest = min(settings.max_batch, settings.max_queue)

    async def start(self) -> None:
        """Compute what all prompts share before the first case comes."""
        await self.judge.warm_up()

    async def aclose(self) -> None:
        """Close the judge."""
        await self.judge.aclose()

    async def judge_all(
        self, cases: Sequence[Case], *, caller: Caller, seed: int | None = None, deadline_s: float | None = None
    ) -> list[Judgment]:
        """Judge cases independently of one another. Every case ends in a judgment, in order; what fails is a status.

        Args:
            cases: what to judge.
            caller: who asks.
            seed: in place of the judge's own.
            deadline_s: for all of it, if it is sooner than the judge's own.

        Raises:
            ServiceError: 413 if the cases can never fit into one request; 503 with Retry-After if they do not fit now.
        """
        if len(cases) > self.largest:
            detail = f"{len(cases)} cases; at most {self.largest} fit into one request"
            raise ServiceError(413, "batch-too-large", "The batch is too large", detail)
        with self.admission.admit(len(cases)):
            given = await asyncio.gather(*(self._judge(case, seed, deadline_s) for case in cases))
        return await self.stores.record(cases, given, self.judge, caller)

    async def _judge(self, case: Case, seed: int | None, deadline_s: float | None) -> Given:
        """Judge a case, or take its judgment from the cache."""
        if (found := await self.stores.recall(self.judge, case, seed)) is not None:
            return Given(found, cached=True)
        judgment = await self.judge.verify(case, seed, deadline_s=deadline_s)
        self.stores.keep(judgment)
        return Given(judgment)
