"""Search an index in this process.

One worker thread owns the model and FAISS. Searches that arrive while it is busy wait in a queue, and the next batch is
whatever waits when the last one is done: no timer, no idle time, large batches exactly when there is much to do.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from retrieval.encoder import Encoder
from retrieval.index import ExactIndex
from retrieval.manifest import Manifest
from retrieval.passage import Hit, IndexCorruptError, IndexMismatchError, QueryError, RetrievalError
from retrieval.shards import open_shards
from retrieval.textstore import TextStore

MAX_QUERY_CHARS = 10_000
_BATCH_QUERIES = 256  # beyond this a batch would only make its first caller wait


@dataclass(frozen=True)
class _Job:
    """One caller's searches. A caller that goes away cancels `future`, and the job is then skipped."""

    queries: Sequence[str]
    k: int
    future: Future[list[list[Hit]]] = field(default_factory=Future)


class LocalRetriever:
    """A `Retriever` over an index folder. Safe to use from any thread and from any number of event loops."""

    def __init__(self, manifest: Manifest, encoder: Encoder, index: ExactIndex, texts: TextStore) -> None:
        """Use `open`, which checks that the four belong together."""
        self._digest = manifest.digest
        self._manifest = manifest
        self._encoder = encoder
        self._index = index
        self._texts = texts
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="retrieval")
        self._lock = threading.Lock()  # guards the three below; held for moments only, never during work
        self._waiting: deque[_Job] = deque()
        self._draining = False
        self._closed = False

    @classmethod
    def open(cls, folder: Path, encoder: Encoder, *, verify: bool = False) -> Self:
        """Open an index with the encoder that built it, and encode one query to see that it works. Blocks for seconds.

        Sizes of files are always checked; their SHA-256 if `verify`, or if the index is under 64 MB.

        Raises:
            IndexMismatchError: the encoder is not the one that built the index.
            IndexCorruptError: a file is missing or damaged.
            EncoderError: the model cannot be loaded or used.
        """
        manifest = Manifest.load(folder)
        manifest.check_encoder(encoder.spec)
        manifest.check_files(folder, verify=verify)
        index = ExactIndex(open_shards(folder, manifest))
        texts = TextStore(folder)
        try:
            if not index.rows == len(texts) == manifest.rows:
                raise IndexCorruptError(
                    f"{folder}: {index.rows} vectors, {len(texts)} passages and {manifest.rows} rows; rebuild the index"
                )
            if encoder.encode_queries(["fever"]).shape != (1, index.dim):
                raise IndexMismatchError(
                    f"{folder}: the encoder's vectors do not have the index's {index.dim} dimensions"
                )
        except BaseException:
            texts.close()
            raise
        return cls(manifest, encoder, index, texts)

    @property
    def digest(self) -> str:
        """SHA-256 over the manifest: same digest, same answers."""
        return self._digest

    @property
    def manifest(self) -> Manifest:
        """What the index is made of."""
        return self._manifest

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the `min(k, rows)` best hits, best first; equal scores are ordered by row.

        Raises:
            QueryError: the query is empty, not a string or longer than 10,000 characters, or k is below 1.
            RetrievalError: anything else that keeps a true answer from being given.
        """
        return (await self.search_many([query], k))[0]

    async def search_many(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Search for several queries at once; answers come in the order of the queries. All succeed or all fail.

        Raises:
            QueryError: as `search`; names the first unusable query.
            RetrievalError: as `search`.
        """
        for query in queries:
            check_query(query)
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        if not queries:
            return []
        job = _Job(tuple(queries), k)
        self._enqueue(job)
        return await asyncio.wrap_future(job.future)

    async def aclose(self) -> None:
        """Let the batch in work finish, fail what waits, and release the files. May be called more than once."""
        with self._lock:
            self._closed = True
            abandoned = list(self._waiting)
            self._waiting.clear()
        for job in abandoned:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(_closed_error())
        await asyncio.to_thread(self._worker.shutdown)
        self._texts.close()

    def _enqueue(self, job: _Job) -> None:
        with self._lock:
            if self._closed:
                raise _closed_error()
            self._waiting.append(job)
            if not self._draining:
                self._draining = True
                self._worker.submit(self._drain)

    def _drain(self) -> None:
        """Answer batch after batch until nothing waits. Runs in the worker thread."""
        while batch := self._next_batch():
            live = [job for job in batch if job.future.set_running_or_notify_cancel()]
            if live:
                self._answer(live)

    def _next_batch(self) -> list[_Job]:
        """Take what waits, up to a bound; with nothing left, the drain ends and the next search starts another."""
        batch, queries = list[_Job](), 0
        with self._lock:
            while self._waiting and queries < _BATCH_QUERIES:
                batch.append(self._waiting.popleft())
                queries += len(batch[-1].queries)
            self._draining = bool(batch)
        return batch

    def _answer(self, jobs: list[_Job]) -> None:
        try:
            found = self._find([query for job in jobs for query in job.queries], max(job.k for job in jobs))
        except Exception as error:  # noqa: BLE001  the thread's edge: whatever it is belongs to the callers
            self._fail(jobs, error)
            return
        start = 0
        for job in jobs:
            stop = start + len(job.queries)
            job.future.set_result([hits[: job.k] for hits in found[start:stop]])
            start = stop

    def _fail(self, jobs: list[_Job], error: Exception) -> None:
        """Pass the error on; if several share it, let each try alone: one bad query fails only its own caller."""
        if len(jobs) > 1:
            for job in jobs:
                self._answer([job])
        elif isinstance(error, RetrievalError):
            jobs[0].future.set_exception(error)
        else:
            failure = RetrievalError(f"the search failed: {error!r}")
            failure.__cause__ = error
            jobs[0].future.set_exception(failure)

    def _find(self, queries: list[str], k: int) -> list[list[Hit]]:
        """Encode, search and read the texts; a query that several callers share is computed once."""
        unique = list(dict.fromkeys(queries))
        scores, rows = self._index.search(self._encoder.encode_queries(unique), k)
        hits = {
            query: [
                Hit(passage=self._texts.get(int(row)), score=float(score), rank=rank)
                for rank, (score, row) in enumerate(zip(scores[number], rows[number], strict=True), start=1)
            ]
            for number, query in enumerate(unique)
        }
        return [hits[query] for query in queries]


def check_query(query: object) -> None:
    """Refuse what cannot be searched for.

    Raises:
        QueryError: not a string, empty or only spaces, over 10,000 characters, or not encodable as UTF-8.
    """
    if not isinstance(query, str):
        raise QueryError(f"the query is {type(query).__name__}; expected a string")
    if len(query) > MAX_QUERY_CHARS:
        raise QueryError(f"the query has {len(query)} characters; at most {MAX_QUERY_CHARS} are allowed")
    if not query.strip():
        raise QueryError("the query is empty")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"the query is not valid Unicode: {error.reason} at character {error.start}") from error


def _closed_error() -> RetrievalError:
    return RetrievalError("the retriever was closed")
