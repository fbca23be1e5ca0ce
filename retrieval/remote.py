"""Search an index that a server elsewhere holds, over the protocol that retrieval servers of trainers speak.

A failure raises; it is never an empty result. The server's digest is read first, and an answer from another index is refused:
what a judge was shown must be what its id says.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from math import isfinite
from time import monotonic
from typing import Any, NoReturn, Self

from pydantic import ValidationError

from retrieval.answers import Answer
from retrieval.clients import LoopClient, retry_after_s
from retrieval.local import check_query
from retrieval.normalize import is_seen
from retrieval.passage import (
    DeadlineError,
    Hit,
    IndexMismatchError,
    OverloadedError,
    PartialAnswerError,
    Passage,
    QueryError,
    RetrievalError,
    UnavailableError,
)
from retrieval.told import NotToldError, told
from retrieval.tries import NoMoreTriesError, Patience, Vain, described, first_answer

_BUSY = 503
_MOST_BYTES, _PASSAGE_BYTES = 64 * 2**20, 64 * 2**10  # of an answer, and for each passage if there are many


class RemoteRetriever:
    """A `Retriever` over a server's `/retrieve`. Use it from one event loop at a time."""

    def __init__(self, url: str, digest: str, *, timeout_s: float = 30.0, retries: int = 5) -> None:
        """Use `connect`, which asks the server for its digest. Nothing is sent yet.

        Args:
            url: address of the server, without `/retrieve`.
            digest: of the index that must answer.
            timeout_s: for a whole search, tries and waits included.
            retries: tries after the first, on lost connections and on 500, 502, 503 and 504.

        Raises:
            ValueError: the URL is none.
        """
        self._url = url.rstrip("/")
        self._digest = digest
        self._timeout_s, self._retries = timeout_s, retries
        self._client = LoopClient(self._url)

    @classmethod
    def connect(cls, url: str, *, timeout_s: float = 30.0, retries: int = 5) -> Self:
        """Ask the server which index it holds, again and again where a search would be tried again. Blocks.

        Args:
            url: as for `RemoteRetriever`.
            timeout_s: for all of this, and later for each search.
            retries: as for `RemoteRetriever`.

        Raises:
            UnavailableError: it does not answer in time, or not as a retrieval server does.
        """
        try:
            digest = told(url, "digest", timeout_s=timeout_s, retries=retries)
        except NotToldError as error:
            raise UnavailableError(f"{error}; start one with `medverify retrieve serve`") from error
        return cls(url, digest, timeout_s=timeout_s, retries=retries)

    @property
    def digest(self) -> str:
        """SHA-256 over what decides the server's answers."""
        return self._digest

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the best hits, best first.

        Raises:
            QueryError: the query is empty, not a string or too long, or k is out of range.
            DeadlineError: no answer in time.
            OverloadedError, UnavailableError: the server was busy, or could not be reached or had no index, at every try.
            PartialAnswerError: it could not search all rows, at every try.
            IndexMismatchError: the server holds another index now.
            RetrievalError: anything else that keeps a true answer from being given.
        """
        return (await self.search_many([query], k))[0]

    async def search_many(self, queries: Sequence[str], k: int, *, deadline_s: float | None = None) -> list[list[Hit]]:
        """Search for several queries in one request; raises as `search`. All succeed or all fail."""
        for query in queries:
            check_query(query)
        if k < 1:
            raise QueryError(f"k is {k}; expected at least 1")
        if not queries:
            return []
        allowed_s = min(deadline_s or self._timeout_s, self._timeout_s)
        vain = list[Vain]()
        try:
            async with asyncio.timeout(allowed_s):
                reply = await self._ask(list(queries), k, allowed_s, vain)
        except TimeoutError as error:
            last = self._failure(vain[-1]) if vain else None
            why = f"; the last try: {last}" if last else ""
            raise DeadlineError(f"{self._url}: no answer within {allowed_s:g} s{why}") from (last or error)
        except NoMoreTriesError as error:
            failure = self._failure(vain[-1])
            failure.args = (f"{failure}; asked {len(vain)} times",)
            raise failure from error
        return self._read(reply, len(queries), k)

    async def aclose(self) -> None:
        """Close the connections. May be called more than once."""
        await self._client.aclose()

    async def _ask(self, queries: list[str], k: int, allowed_s: float, vain: list[Vain]) -> Answer:
        """One request, tried again after a lost connection or a passing trouble; raises as `first_answer`."""
        return await first_answer(
            self._client.here(),
            "POST",
            "/retrieve",
            most=max(_MOST_BYTES, len(queries) * k * _PASSAGE_BYTES),
            ends=monotonic() + allowed_s,
            patience=Patience(self._retries),
            vain=vain,
            body=lambda left_s: {
                "queries": queries,
                "topk": k,
                "return_scores": True,
                "deadline_s": left_s,
                "partial": False,
            },
        )

    def _failure(self, vain: Vain) -> RetrievalError:
        """The last failure, once there are no more tries."""
        if isinstance(vain, Answer):
            return self._passing(vain)
        return UnavailableError(f"{self._url}: {described(vain)}")

    def _passing(self, reply: Answer) -> RetrievalError:
        """What a status means that may be another one soon."""
        message = f"{self._url}: {reply.described()}"
        if reply.status == _BUSY:
            try:
                fields = reply.json()
                kind = fields["type"].removeprefix("urn:medverify:problem:")
                if kind == "rows-missing":
                    return PartialAnswerError(message, _rows(fields["missing_rows"]), [])
            except (ValueError, KeyError, TypeError, AttributeError):
                kind = ""  # another server's, or a proxy's
            match kind:
                case "deadline":
                    return DeadlineError(message)
                case "unavailable":
                    return UnavailableError(message)
                case _:
                    return OverloadedError(message, retry_after_s(reply.headers))
        return UnavailableError(message) if reply.status in (502, 504) else RetrievalError(message)

    def _read(self, reply: Answer, count: int, k: int) -> list[list[Hit]]:
        if reply.status != 200:
            self._refuse(reply)
        found = reply.headers.get("X-Index-Digest")
        if found is None:
            raise IndexMismatchError(
                f"{self._url}: the answer does not say which index gave it (no header X-Index-Digest); let proxies pass "
                "that header on"
            )
        if found != self._digest:
            raise IndexMismatchError(
                f"{self._url}: the index was {self._digest} and is {found} now; restart what uses it, so that its "
                "results name the new one"
            )
        try:
            body = reply.json()
            result, partial = body["result"], body.get("partial", False)
            missing = _rows(body["missing_rows"]) if partial and "missing_rows" in body else ()
            hits = [[_hit(entry, rank) for rank, entry in enumerate(entries, start=1)] for entries in result]
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise RetrievalError(f"{self._url}: the answer cannot be read: {error!r:.300}") from error
        if partial:
            raise PartialAnswerError(f"{self._url}: the answer is without the rows {missing}", missing, hits)
        if len(hits) != count or not all(hits):
            raise RetrievalError(
                f"{self._url}: {count} queries were answered with {len(hits)} lists, {sum(not h for h in hits)} of them empty"
            )
        if (most := max(map(len, hits), default=0)) > k:
            raise RetrievalError(f"{self._url}: {k} passages were asked for and {most} came")
        if (blank := next((hit for hit in chain(*hits) if not is_seen(hit.passage.text)), None)) is not None:
            raise RetrievalError(f"{self._url}: passage {blank.passage.id!r:.80} has no text that can be seen")
        scores = [[hit.score for hit in found] for found in hits]
        if not all(map(isfinite, chain(*scores))) or any(marks != sorted(marks, reverse=True) for marks in scores):
            raise RetrievalError(f"{self._url}: the passages are not ordered by their scores")
        return hits

    def _refuse(self, reply: Answer) -> NoReturn:
        message = f"{self._url}: {reply.described()}"
        raise (QueryError if reply.status == 422 else RetrievalError)(message)


def _hit(entry: Mapping[str, Any], rank: int) -> Hit:
    return Hit(passage=Passage.model_validate(entry["document"]), score=entry["score"], rank=rank)


def _rows(found: Any) -> tuple[tuple[int, int], ...]:
    """Ranges of rows; a ValueError or TypeError if they are none."""
    ranges = tuple((start, stop) for start, stop in found)
    if not all(type(border) is int for border in chain(*ranges)):
        raise TypeError(f"missing_rows is {found!r:.80}")
    return ranges
