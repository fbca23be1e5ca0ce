"""Searches over HTTP: `/retrieve` and `/get_observation` over any retriever, for every service that offers them."""

import asyncio
import logging
from collections.abc import Sequence
from math import ceil
from typing import Protocol, runtime_checkable

from fastapi import FastAPI, Request, Response

from configs.settings import RetrieveSettings
from retrieval.local import check_query
from retrieval.passage import (
    DeadlineError,
    Hit,
    OverloadedError,
    PartialAnswerError,
    QueryError,
    RetrievalError,
    Retriever,
    UnavailableError,
)
from serve.client_left import unless_client_leaves
from serve.errors import ServiceError, described, problem, without_folders
from serve.request_ids import in_the_log
from serve.retrieval_schemas import (
    DEFAULT_TOPK,
    Observe,
    Retrieve,
    read_body,
    render,
    unusable,
)
from serve.tool import observe

_log = logging.getLogger(__name__)
_JSON = "application/json"
DIGEST_HEADER = "X-Index-Digest"  # of every answer: the index that gave it

#: Problems of every route that searches.
SEARCHING = described(
    {
        408: "The body did not arrive in time.",
        413: "The request is too large.",
        422: "The request does not fit the schema, or a query cannot be searched for.",
        500: "The search failed.",
        503: "Busy, not ready, or not done by the deadline; come back after Retry-After seconds.",
    }
)


@runtime_checkable
class _SearchesMany(Protocol):
    """A retriever that takes several queries at once, and a deadline for them."""

    async def search_many(
        self, queries: Sequence[str], k: int, *, deadline_s: float | None = None
    ) -> list[list[Hit]]: ...


async def search_many(retriever: Retriever, queries: Sequence[str], k: int, deadline_s: float) -> list[list[Hit]]:
    """Search for several queries within a deadline, however the retriever takes them. All succeed or all fail.

    Raises:
        DeadlineError: the answer is not there in time.
        RetrievalError: anything else that keeps a true answer from being given.
    """
    if isinstance(retriever, _SearchesMany):
        return await retriever.search_many(queries, k, deadline_s=deadline_s)
    found = list[list[Hit]]()
    try:
        async with asyncio.timeout(deadline_s):
            for query in queries:  # one at a time, as it takes them: a lock inside would only queue the others
                check_query(query)
                found.append(await retriever.search(query, k))
    except TimeoutError as error:
        raise DeadlineError(f"no answer within the deadline of {deadline_s:g} s") from error
    return found


class Searching:
    """The work of the two routes, on requests as they come: the routes are in `serve/routes/searches.py`."""

    def __init__(self, retriever: Retriever, settings: RetrieveSettings) -> None:
        self._retriever = retriever
        self._settings = settings

    async def retrieve(self, request: Request) -> Response:
        """Find the best passages for one query or several. All are answered, or the request fails.

        An index on several machines may have lost some of its rows for the moment. That is an error too, unless the request
        or the service allows `partial` answers: these say that they are, and which rows were not searched.
        """
        asked = read_body(Retrieve, await request.body())
        queries, k = asked.asked(), asked.topk or DEFAULT_TOPK
        self._check_size(len(queries), k)
        for position, query in enumerate(queries):
            try:
                check_query(query)
            except QueryError as error:
                raise unusable(None if asked.queries is None else position, error) from error
        deadline_s = min(asked.deadline_s or self._settings.deadline_s, self._settings.deadline_s)
        missing: Sequence[tuple[int, int]] = ()
        try:
            found: Sequence[Sequence[Hit]] = await unless_client_leaves(
                request, search_many(self._retriever, queries, k, deadline_s)
            )
        except PartialAnswerError as error:
            allowed = self._settings.allow_partial if asked.partial is None else asked.partial
            if not allowed or not error.hits or not all(error.hits):  # nothing at all is no part of an answer
                raise
            found, missing = error.hits, error.missing
        return self._answer(render(found, asked.return_scores, missing))

    async def get_observation(self, request: Request) -> Response:
        """Run the search that each action ends in, and give the evidence as the judge reads it."""
        asked = read_body(Observe, await request.body())
        self._check_size(len(asked.actions), DEFAULT_TOPK)

        async def search(queries: Sequence[str]) -> list[list[Hit]]:
            return await search_many(self._retriever, queries, DEFAULT_TOPK, self._settings.deadline_s)

        seen = await unless_client_leaves(request, observe(asked, search))
        return self._answer(seen.model_dump_json().encode())

    def _answer(self, body: bytes) -> Response:
        return Response(body, media_type=_JSON, headers={DIGEST_HEADER: self._retriever.digest})

    def _check_size(self, queries: int, k: int) -> None:
        settings = self._settings
        largest = min(settings.max_queries, settings.max_waiting)  # one that never fits must not be told to come back
        if queries > largest:
            detail = f"{queries} queries; at most {largest} fit into one request"
            raise ServiceError(413, "batch-too-large", "The batch is too large", detail)
        if k > settings.max_topk:
            detail = f"topk is {k}; at most {settings.max_topk} are given"
            fault = {"field": "topk", "expected": f"at most {settings.max_topk}"}
            raise ServiceError(422, "invalid-request", "The request does not fit the schema", detail, errors=[fault])
        if queries * k > settings.max_passages:
            detail = f"{queries} queries with {k} passages each; at most {settings.max_passages} passages fit into one answer"
            raise ServiceError(413, "batch-too-large", "The batch is too large", detail)


def install_searching(app: FastAPI, *, reasons: bool = False) -> None:
    """Make the app answer every error of a search with a problem.

    `reasons`: tell why something is away, without where files lie; for the service of an index itself. Elsewhere the reasons
    name addresses that are no business of a caller's.
    """

    @app.exception_handler(RetrievalError)
    async def failed(_: Request, error: RetrievalError) -> Response:
        return _problem(error, reasons=reasons)


def _problem(error: RetrievalError, *, reasons: bool) -> Response:
    """The error on the wire. Never 429, which some trainers take for the end, and never an empty result."""

    def detail(public: str) -> str:
        if reasons:
            return without_folders(str(error))
        _log.warning("a search was not answered: %s", error)
        return f"{public}; {in_the_log()}"

    match error:
        case OverloadedError():
            wait = {"Retry-After": str(ceil(error.retry_after_s))}
            return problem(503, "overloaded", "The service is busy", detail("too many searches wait"), wait)
        case DeadlineError():
            late = detail("the search was not done by its deadline")
            return problem(503, "deadline", "The answer is not there in time", late, {"Retry-After": "1"})
        case PartialAnswerError():
            again, lost = {"Retry-After": "5"}, detail("a part of the index is away")
            return problem(503, "rows-missing", "Some rows cannot be searched", lost, again, missing_rows=error.missing)
        case UnavailableError():
            away = detail("the index cannot be asked at the moment")
            return problem(503, "unavailable", "The service is not ready", away, {"Retry-After": "5"})
        case QueryError():
            return problem(422, "invalid-request", "The query cannot be searched for", without_folders(str(error)))
        case _:
            _log.error("the search failed", exc_info=error)
            return problem(500, "retrieval-failed", "The search failed", f"the search failed; {in_the_log()}")
