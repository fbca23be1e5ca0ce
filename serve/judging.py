"""The one way from a route to a judgment."""

import asyncio
from collections.abc import Sequence
from typing import Literal

from configs.settings import ServeSettings
from serve.admission import Admission
from serve.callers import Caller
from serve.errors import ServiceError
from serve.stores import Given, Stores
from verifier.judge import Judge
from verifier.types import Case, Judgment

#: What is asked about a trace: whether it is free of errors, or whether it holds together.
About = Literal["correctness", "coherence"]


class JudgingService:
    """Lets cases in and has them judged. Used on the event loop only."""

    def __init__(
        self, judge: Judge, settings: ServeSettings, stores: Stores | None = None, *, coherence: Judge | None = None
    ) -> None:
        """Args:
        judge: of correctness.
        settings: of the service.
        stores: what was judged and is kept; None: nothing is.
        coherence: judge of coherence, over the same engine and retriever; None: nobody judges it here.
        """
        self.judge = judge
        self.coherence = coherence
        self.stores = stores or Stores()
        self.admission = Admission(settings.max_queue, settings.retry_after_s)
        # One that never fits must not be told to come back.
        self.largest = min(settings.max_batch, settings.max_queue)

    async def start(self) -> None:
        """Compute what all prompts share before the first case comes."""
        await self.judge.warm_up()
        if self.coherence is not None:
            await self.coherence.warm_up()

    async def aclose(self) -> None:
        """Close the judge; what judges coherence shares all that there is to close."""
        await self.judge.aclose()

    async def judge_all(
        self,
        cases: Sequence[Case],
        *,
        caller: Caller,
        seed: int | None = None,
        deadline_s: float | None = None,
        about: About = "correctness",
    ) -> list[Judgment]:
        """Judge cases independently of one another. Every case ends in a judgment, in order; what fails is a status.

        Args:
            cases: what to judge.
            caller: who asks.
            seed: in place of the judge's own.
            deadline_s: for all of it, if it is sooner than the judge's own.
            about: the question that is asked about each trace.

        Raises:
            ServiceError: 413 if the cases can never fit into one request; 503 with Retry-After if they do not fit now; 501 if
                nobody judges that here.
        """
        judge = self._asked(about)
        if len(cases) > self.largest:
            detail = f"{len(cases)} cases; at most {self.largest} fit into one request"
            raise ServiceError(413, "batch-too-large", "The batch is too large", detail)
        with self.admission.admit(len(cases)):
            given = await asyncio.gather(*(self._judge(judge, case, seed, deadline_s, about) for case in cases))
        return await self.stores.record(cases, given, judge, caller, about=about)

    async def _judge(self, judge: Judge, case: Case, seed: int | None, deadline_s: float | None, about: About) -> Given:
        """Judge a case, or take its judgment from the cache."""
        if (found := await self.stores.recall(judge, case, seed, about)) is not None:
            return Given(found, cached=True)
        judgment = await judge.verify(case, seed, deadline_s=deadline_s)
        self.stores.keep(judgment, about)
        return Given(judgment)

    def _asked(self, about: About) -> Judge:
        if about == "correctness":
            return self.judge
        if self.coherence is None:
            detail = "this service has no judge for coherence"
            raise ServiceError(501, "no-such-question", "The question cannot be asked here", detail)
        return self.coherence
