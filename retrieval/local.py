"""Search an index in this process: queue, cache, ranking, texts."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from configs.settings import EXACT, Profile
from retrieval.encoder import Encoder
from retrieval.heap import heap_trimmer
from retrieval.manifest import Manifest
from retrieval.normalize import is_seen
from retrieval.passage import Hit, IndexCorruptError, IndexMismatchError, PartialAnswerError, QueryError
from retrieval.profiles import open_ranker
from retrieval.ranker import DenseRanker, MissingRowsError, Ranker, Ranking
from retrieval.rerank import CrossEncoder
from retrieval.search_queue import Ask, SearchQueue
from retrieval.stats import EngineStats, Staged
from retrieval.textstore import TextStore

MAX_QUERY_CHARS = 10_000
MAX_WAITING = 1024  # searches in the queue: at a few hundred a second, some seconds' work
MAX_BATCH = 256  # beyond this a batch would only make its first caller wait
CACHED_HITS = 50_000  # passages that cached answers may hold together: about 100 MB of text
CACHED_PASSAGES = 4096  # decoded passages kept by row


_Key = tuple[str, str, str, int]  # digest, profile, query, k


class LocalRetriever:
    """A `Retriever` over a ranker and the passages it ranks. Safe to use from any thread and any number of event loops."""

    def __init__(
        self,
        ranker: Ranker,
        texts: TextStore,
        manifest: Manifest | None = None,
        *,
        max_waiting: int = MAX_WAITING,
        max_batch: int = MAX_BATCH,
        cached_hits: int = CACHED_HITS,
    ) -> None:
        """Args:
        ranker: owned from now on; used by the worker thread only.
        texts: the passages that the ranker's rows stand for; closed with the retriever.
        manifest: of the index that these are parts of, for those who want to know; None: of none.
        cached_hits: passages that remembered answers may hold together, their queries counted as passages too; 0 switches the
            cache off.
        """
        self._ranker = ranker
        self._texts = texts
        self.manifest = manifest
        self._passage = lru_cache(CACHED_PASSAGES)(texts.get)
        self._cache = _Cache(cached_hits)
        self.stats = EngineStats()
        if isinstance(ranker, Staged):
            self.stats.stages |= ranker.stages
        self._queue = SearchQueue(
            self._find, max_waiting=max_waiting, max_batch=max_batch, stats=self.stats, between=heap_trimmer()
        )

    @classmethod
    def open(
        cls,
        folder: Path,
        encoder: Encoder,
        profile: Profile = "dense",
        cross_encoder: CrossEncoder | None = None,
        *,
        vectors: str = EXACT,
        backend: str = "auto",
        device: str = "auto",
        verify: bool = False,
        **limits: int,
    ) -> Self:
        """Open an index with the encoder that built it, and encode one query to see that it works. Blocks for seconds.

        Sizes of files are always checked; their SHA-256 if `verify`, or if the index is under 64 MB.
        `vectors` names a compressed copy to be searched instead; `limits` are those of the constructor;
        `backend` and `device` say what searches exact vectors, and where, as for `ExactIndex`.

        Raises:
            IndexMismatchError: the encoder is not the one that built the index, the profile needs a part that it has not, or
                the index was replaced while it was opened.
            IndexCorruptError: a file is missing or damaged.
            EncoderError: a model cannot be loaded or used.
            BackendError: the back end or the device is not there, or has too little memory.
        """
        ranker, texts, manifest = open_index(
            folder,
            encoder,
            profile,
            cross_encoder,
            vectors=vectors,
            backend=backend,
            device=device,
            verify=verify,
        )
        return cls(ranker, texts, manifest, **limits)

    @property
    def digest(self) -> str:
        """SHA-256 over what decides the answers: same digest, same answers."""
        return self._ranker.digest

    @property
    def profile(self) -> str:
        """How is searched."""
        return self._ranker.profile

    @property
    def texts(self) -> TextStore:
        """The passages by row."""
        return self._texts

    @property
    def waiting(self) -> int:
        """Searches that no batch has taken yet."""
        return self._queue.waiting

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the `min(k, rows)` best hits, best first; equal scores are ordered by row.

        Raises:
            QueryError: the query is empty, not a string or longer than 10,000 characters, or k is below 1.
            RetrievalError: anything else that keeps a true answer from being given.
        """
        return (await self.search_many([query], k))[0]

    async def search_many(
        self, queries: Sequence[str], k: int, *, deadline_s: float | None = None, cached: bool = True
    ) -> list[list[Hit]]:
        """Search for several queries at once; answers come in the order of the queries. All succeed or all fail.

        Args:
            deadline_s: how long the caller waits. What is still queued then is not worked on.
            cached: whether a remembered answer will do.

        Raises:
            QueryError: as `search`; names the first unusable query.
            OverloadedError: the queue is full; nothing was begun.
            DeadlineError: the answer is not there in time.
            PartialAnswerError: not all rows could be searched; holds what the others gave.
            RetrievalError: as `search`.
        """
        for query in queries:
            check_query(query)
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        if not queries:
            return []
        known = [self._cache.get(self._key(query, k)) if cached else None for query in queries]
        unknown = [query for query, hits in zip(queries, known, strict=True) if hits is None]
        with self.stats.lock:
            self.stats.searches += len(queries)
            self.stats.cached += len(queries) - len(unknown)
        if not unknown:
            return [list(hits) for hits in known if hits is not None]
        answers = iter(await self._queue.ask(unknown, k, deadline_s))
        found = [_Found(hits) if hits is not None else next(answers) for hits in known]
        if partial := next((answer for answer in found if answer.missing), None):
            raise PartialAnswerError(partial.why, partial.missing, [answer.hits for answer in found])
        return [list(answer.hits) for answer in found]

    async def aclose(self) -> None:
        """Let the batch in work finish, fail what waits, and release the files. May be called more than once."""
        await asyncio.to_thread(self._queue.close)
        self._texts.close()

    def _find(self, asks: list[Ask]) -> list["_Found"]:
        """Rank and read the texts, for the largest k that is asked for. The worker thread."""
        longest = dict[str, int]()  # the largest k of each query
        for query, k in asks:
            longest[query] = max(k, longest.get(query, 0))
        queries = list(longest)
        missing, why = tuple[tuple[int, int], ...](), ""
        try:
            with self.stats.stages["rank"].timed():
                rankings = self._ranker.rank(queries, max(longest.values()))
        except MissingRowsError as error:  # not raised here: it is not a query's fault, so trying them apart is no use
            rankings, missing, why = error.rankings, error.missing, str(error)
        with self.stats.stages["read"].timed():
            hits = {q: self._hits(ranking, longest[q]) for q, ranking in zip(queries, rankings, strict=True)}
        answers = [_Found(hits[query][:k], missing, why) for query, k in asks]
        for ask, answer in zip(asks, answers, strict=True):
            if not answer.missing:
                self._cache.put(self._key(*ask), answer.hits)
        return answers

    def _hits(self, ranking: Ranking, k: int) -> tuple[Hit, ...]:
        pairs = zip(ranking.rows[:k].tolist(), ranking.scores[:k].tolist(), strict=True)
        return tuple(
            Hit(passage=self._passage(row), score=score, rank=n) for n, (row, score) in enumerate(pairs, start=1)
        )

    def _key(self, query: str, k: int) -> _Key:
        return self._ranker.digest, self._ranker.profile, query, k


class _Found(NamedTuple):
    """What a search found, and the rows that it could not look at."""

    hits: tuple[Hit, ...]
    missing: tuple[tuple[int, int], ...] = ()
    why: str = ""


class _Cache:
    """The answers used last, up to a number of hits over all of them. An answer costs at least one, so that all are bounded."""

    def __init__(self, max_hits: int) -> None:
        self._limit = self._room = max_hits
        self._answers = OrderedDict[_Key, tuple[Hit, ...]]()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> tuple[Hit, ...] | None:
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
            return self._answers.get(key)

    def put(self, key: _Key, hits: tuple[Hit, ...]) -> None:
        cost = _cost(key, hits)
        if cost > self._limit:
            return
        with self._lock:
            if key in self._answers:
                self._room += _cost(key, self._answers.pop(key))
            self._answers[key] = hits
            self._room -= cost
            while self._room < 0:
                self._room += _cost(*self._answers.popitem(last=False))

    def __len__(self) -> int:
        return len(self._answers)


def _cost(key: _Key, hits: Sequence[Hit]) -> int:
    """In passages: the hits, and one for each thousand characters of the query that was begun."""
    return len(hits) + 1 + len(key[2]) // 1000


def open_index(
    folder: Path,
    encoder: Encoder,
    profile: Profile = "dense",
    cross_encoder: CrossEncoder | None = None,
    *,
    vectors: str = EXACT,
    backend: str = "auto",
    device: str = "auto",
    verify: bool = False,
) -> tuple[Ranker, TextStore, Manifest]:
    """The ranker, the passages and the manifest of an index folder; raises as `LocalRetriever.open`."""
    manifest = Manifest.load(folder)
    manifest.check_encoder(encoder.spec)
    manifest.check_files(folder, verify=verify)
    texts = TextStore(folder)
    try:
        if len(texts) != manifest.rows:
            raise IndexCorruptError(f"{folder}: {len(texts)} passages and {manifest.rows} rows; rebuild the index")
        ranker = open_ranker(
            profile,
            folder,
            manifest,
            encoder,
            texts,
            cross_encoder=cross_encoder,
            vectors=vectors,
            backend=backend,
            device=device,
            verify=verify,
        )
        if not isinstance(ranker, DenseRanker):  # which was tried when it was opened
            ranker.rank(["fever"], 1)
        if Manifest.load(folder).digest != manifest.digest:  # the files above may be of both
            raise IndexMismatchError(f"{folder}: the index was replaced while it was opened; open it again")
    except BaseException:
        texts.close()
        raise
    return ranker, texts, manifest


def check_query(query: object) -> None:
    """Refuse what cannot be searched for.

    Raises:
        QueryError: not a string, empty or nothing to be seen in it, over 10,000 characters, or not encodable as UTF-8.
    """
    if not isinstance(query, str):
        raise QueryError(f"the query is {type(query).__name__}; expected a string")
    if len(query) > MAX_QUERY_CHARS:
        raise QueryError(f"the query has {len(query)} characters; at most {MAX_QUERY_CHARS} are allowed")
    if not is_seen(query):
        raise QueryError("the query is empty")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"the query is not valid Unicode: {error.reason} at character {error.start}") from error
