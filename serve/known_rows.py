"""Whether an index answers as it must: known passages are asked for with their own words and have to come back."""

import asyncio
from time import monotonic

from retrieval.local import MAX_QUERY_CHARS, LocalRetriever
from retrieval.passage import IndexMismatchError, OverloadedError, RetrievalError

PASSAGES = 8  # spread evenly over the index
DEPTH = 10  # a passage may have near copies, but not many
ENOUGH = 0.5  # of the passages; an index asked with another encoder brings back next to none


class KnownRows:
    """Asks for known passages at the start, and again whenever somebody wants to know and the last time is long ago."""

    def __init__(self, retriever: LocalRetriever, *, every_s: float = 10.0, deadline_s: float = 5.0) -> None:
        self._retriever = retriever
        self._every_s, self._deadline_s = every_s, deadline_s
        rows = len(retriever.texts)
        passages = [retriever.texts.get(row) for row in range(0, rows, -(-rows // PASSAGES))]
        self._known = {passage.text[:MAX_QUERY_CHARS]: (passage.corpus, passage.id) for passage in passages}
        self._checked_at = float("-inf")
        self._fault: RetrievalError | None = None
        self._turn = asyncio.Lock()

    async def check(self) -> None:
        """Return if the index answers as it must.

        Raises:
            IndexMismatchError: the passages do not come back.
            RetrievalError: the search itself fails.
        """
        async with self._turn:
            if monotonic() - self._checked_at > self._every_s:
                try:
                    await self._ask()
                    self._fault = None
                except OverloadedError:
                    pass  # busy is not broken: what was known stands
                except RetrievalError as fault:
                    self._fault = fault
                self._checked_at = monotonic()
            if self._fault:
                raise self._fault

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
