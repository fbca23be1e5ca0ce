"""Whether an index answers as it must: known passages are asked for with their own words and have to come back."""

import asyncio
from time import monotonic

from retrieval.local import MAX_QUERY_CHARS, LocalRetriever
from retrieval.passage import DeadlineError, IndexMismatchError, OverloadedError, RetrievalError, UnavailableError

PASSAGES = 8  # spread evenly over the index
READ_PASSAGES = 2  # where a cross-encoder reads every candidate, which takes seconds a query without a GPU
DEPTH = 10  # a passage may have near copies, but not many
PATIENCE_S = 1.0  # that somebody waits for a new answer while the last one was good
ENOUGH = 0.5  # of the passages; an index asked with another encoder brings back next to none


class KnownRows:
    """Asks for known passages at the start, and again whenever somebody wants to know and the last time is long ago."""

    def __init__(self, retriever: LocalRetriever, *, deadline_s: float, every_s: float = 10.0) -> None:
        """Args:
        deadline_s: of any search of this service: one that takes as long as it may is no fault.
        every_s: how long an answer stands.
        """
        self._retriever = retriever
        self._every_s, self._deadline_s = every_s, deadline_s
        rows = len(retriever.texts)
        count = READ_PASSAGES if retriever.profile == "rerank" else PASSAGES
        passages = [retriever.texts.get(row) for row in range(0, rows, -(-rows // count))]
        self._known = {passage.text[:MAX_QUERY_CHARS]: (passage.corpus, passage.id) for passage in passages}
        self._checked_at = float("-inf")
        self._fault: RetrievalError | None = UnavailableError("no passage could be asked for yet: too much to do")
        self._asking: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Return if the index answers as it must.

        Raises:
            IndexMismatchError: the passages do not come back.
            UnavailableError: the service was too busy to be asked ever since it started, or nothing moves.
            RetrievalError: the search itself fails.
        """
        if monotonic() - self._checked_at > self._every_s and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._look())
        if self._asking and not self._asking.done():  # a busy service that was sound says so without the wait
            await asyncio.wait({self._asking}, timeout=None if self._fault else PATIENCE_S)
        if self._fault:
            raise self._fault

    async def _look(self) -> None:
        ranked = self._retriever.stats.stages["rank"]
        before = ranked.count
        try:
            await self._ask()
            self._fault = None
        except OverloadedError:
            return  # busy is not broken: what was known stands, and the next caller asks again
        except DeadlineError:
            if ranked.count != before:
                return
            self._fault = UnavailableError(f"no search was done in {self._deadline_s:g} s")
        except RetrievalError as fault:
            self._fault = fault
        self._checked_at = monotonic()

    async def _ask(self) -> None:
        found = await self._retriever.search_many(list(self._known), DEPTH, deadline_s=self._deadline_s, cached=False)
        back = sum(
            wanted in [(hit.passage.corpus, hit.passage.id) for hit in hits]
            for wanted, hits in zip(self._known.values(), found, strict=True)
        )
        if back < ENOUGH * len(self._known):
            raise IndexMismatchError(
                f"of {len(self._known)} passages that were asked for with their own text, {back} came back among the "
                f"first {DEPTH}: index and encoder do not fit; rebuild the index"
            )
