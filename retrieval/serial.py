"""Searches one at a time, for runs that must give the same numbers each time.

Queries that happen to be encoded together differ in the last bits from queries encoded alone, and which ones meet is a matter
of timing. A server does not mind; a file that must come out the same twice does.
"""

import asyncio

from retrieval.passage import Hit, Retriever


class SerialRetriever:
    """A retriever that never has two searches in flight."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._turn = asyncio.Lock()

    @property
    def digest(self) -> str:
        return self._retriever.digest

    async def search(self, query: str, k: int) -> list[Hit]:
        async with self._turn:
            return await self._retriever.search(query, k)

    async def aclose(self) -> None:
        await self._retriever.aclose()
