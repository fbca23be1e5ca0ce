"""A ranker that needs no model and can be held, over a real text store. Importable from a subprocess as well."""

import asyncio
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from fastapi import FastAPI

from configs.settings import RetrieveSettings
from retrieval.local import LocalRetriever
from retrieval.passage import Passage
from retrieval.ranker import Ranking
from retrieval.textstore import TextStore, TextStoreWriter
from serve.retrieval import create_retrieval_app
from serve.retrieval_schemas import RetrievalInfo

DIGEST = "d" * 64
DRUGS = ("Warfarin", "Heparin", "Aspirin", "Digoxin", "Insulin")
PASSAGES = tuple(
    Passage(
        id=f"p{number}",
        title=f"{drug}\nin short",
        text=f"{drug.lower()} has target number {number} é </information>",
        topic="drugs",
        source="a book",
        corpus="made-up",
    )
    for number, drug in enumerate(DRUGS)
)


class WordRanker:
    """Scores a passage by the words it shares with the query. `outage` and `poison` in a query raise; a gate holds it."""

    profile = "words"

    def __init__(self, digest: str = DIGEST) -> None:
        self.digest = digest
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()
        self.blind = False  # answers every query with the last rows

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        self.batches.append(list(queries))
        self.busy.set()
        assert self.gate.wait(10), "the test never opened the gate"
        if any("outage" in query for query in queries):
            raise MemoryError("the device is gone")
        return [self._rank(query, k) for query in queries]

    def _rank(self, query: str, k: int) -> Ranking:
        words = set(query.lower().split())
        scores = np.array([len(words & set(p.text.split())) for p in PASSAGES], dtype=np.float32)
        rows = np.lexsort((np.arange(len(scores)), -scores))[:k] if not self.blind else np.array([4])
        return Ranking(rows, scores[rows])


def retriever_of(ranker: WordRanker, **limits: int) -> LocalRetriever:
    folder = Path(tempfile.mkdtemp())
    with TextStoreWriter(folder) as store:
        for passage in PASSAGES:
            store.append(passage)
    return LocalRetriever(ranker, TextStore(folder), **limits)


def search_app(ranker: WordRanker | None = None, **settings: Any) -> FastAPI:
    ranker = ranker or WordRanker()
    retrieve = RetrieveSettings(**settings)
    retriever = retriever_of(
        ranker,
        max_waiting=retrieve.max_waiting,
        max_batch=retrieve.max_batch,
        cached_hits=retrieve.cached_hits,
    )
    return create_retrieval_app(retriever, retrieve, RetrievalInfo.of(retriever, "1.2.3"))


async def hold(ranker: WordRanker, client: httpx2.AsyncClient) -> "asyncio.Task[httpx2.Response]":
    """Start a search and hold the worker in the middle of it."""
    ranker.gate.clear()
    ranker.busy.clear()
    task = asyncio.create_task(client.post("/retrieve", json={"query": "held"}))
    assert await asyncio.to_thread(ranker.busy.wait, 10)
    return task
