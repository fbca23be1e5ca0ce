"""The retrieval service: an index behind the routes that trainers' clients already call."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import ceil
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.datastructures import MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from configs.settings import RetrieveSettings
from retrieval.local import LocalRetriever, check_query
from retrieval.passage import (
    DeadlineError,
    Hit,
    OverloadedError,
    PartialAnswerError,
    QueryError,
    RetrievalError,
    UnavailableError,
)
from serve.body_limit import BodyLimit
from serve.client_left import unless_client_leaves
from serve.errors import ServiceError, described, install, problem
from serve.known_rows import KnownRows
from serve.metrics import RetrievalMetrics
from serve.retrieval_schemas import (
    DEFAULT_TOPK,
    Observations,
    Observe,
    RetrievalInfo,
    RetrievalReady,
    Retrieve,
    Retrieved,
    read_body,
    render,
    unusable,
)
from serve.schemas import Health
from serve.tool import observe

_log = logging.getLogger(__name__)
_JSON = "application/json"
_PROBLEMS = described(
    {
        408: "The body did not arrive in time.",
        413: "The request is too large.",
        422: "The request does not fit the schema, or a query cannot be searched for.",
        500: "The search failed.",
        503: "Busy, not ready, or not done by the deadline; come back after Retry-After seconds.",
    }
)


def create_retrieval_app(retriever: LocalRetriever, settings: RetrieveSettings, info: RetrievalInfo) -> FastAPI:
    """Build the service around an opened index, which it closes when it stops."""
    metrics = RetrievalMetrics(retriever)
    known = KnownRows(retriever, deadline_s=settings.deadline_s)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await retriever.aclose()

    app = _LabelledApp(
        partial(Labelled, digest=retriever.digest, metrics=metrics),
        title="medverify retrieval",
        version=info.version,
        summary="Finds passages of a medical corpus. A research tool, not a medical device.",
        lifespan=lifespan,
    )
    install(app)
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_s)

    @app.exception_handler(RetrievalError)
    async def failed(_: Request, error: RetrievalError) -> Response:
        return _problem(error)

    # Bodies are read and written as bytes: one pass of compiled code each.
    @app.post("/retrieve", openapi_extra=_body(Retrieve), responses={200: {"model": Retrieved}, **_PROBLEMS})
    async def retrieve(request: Request) -> Response:
        """Find the best passages for one query or several. All are answered, or the request fails.

        An index on several machines may have lost some of its rows for the moment. That is an error too, unless the request
        or the service allows `partial` answers: these say that they are, and which rows were not searched.
        """
        asked = read_body(Retrieve, await request.body())
        queries, k = asked.asked(), asked.topk or DEFAULT_TOPK
        _check_size(len(queries), k, settings)
        for position, query in enumerate(queries):
            try:
                check_query(query)
            except QueryError as error:
                raise unusable(None if asked.queries is None else position, error) from error
        deadline_s = min(asked.deadline_s or settings.deadline_s, settings.deadline_s)
        missing: Sequence[tuple[int, int]] = ()
        try:
            found: Sequence[Sequence[Hit]] = await unless_client_leaves(
                request, retriever.search_many(queries, k, deadline_s=deadline_s)
            )
        except PartialAnswerError as error:
            allowed = settings.allow_partial if asked.partial is None else asked.partial
            if not allowed or not all(error.hits):  # nothing at all is no part of an answer: the index is gone
                raise
            found, missing = error.hits, error.missing
        return Response(render(found, asked.return_scores, missing), media_type=_JSON)

    # The same, called without FastAPI's dependency machinery, which costs as much as the rest of the request. The route
    # above is the one that the description is made from.
    app.router.routes.insert(0, Route("/retrieve", retrieve, methods=["POST"]))

    @app.post("/get_observation", openapi_extra=_body(Observe), responses=_PROBLEMS)
    async def get_observation(request: Request) -> Observations:
        """Run the search that each action ends in, and give the evidence as the judge reads it."""
        asked = read_body(Observe, await request.body())
        _check_size(len(asked.actions), DEFAULT_TOPK, settings)

        async def search(queries: Any) -> list[list[Hit]]:
            return await retriever.search_many(queries, DEFAULT_TOPK, deadline_s=settings.deadline_s)

        return await unless_client_leaves(request, observe(asked, search))

    @app.get("/health")
    async def health() -> Health:
        """The process is alive."""
        return Health()

    @app.get("/ready", responses={503: _PROBLEMS[503]})
    async def ready() -> RetrievalReady:
        """Known passages come back when they are asked for; asked again when the last time is long ago."""
        try:
            await known.check()
        except RetrievalError as error:
            raise UnavailableError(f"not ready: {error}") from error
        return RetrievalReady(searches_waiting=retriever.waiting)

    @app.get("/info")
    async def about() -> RetrievalInfo:
        """What is searched here, and how."""
        return info

    @app.get("/metrics")
    async def measured() -> Response:
        """Counts and times per stage, for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


class _LabelledApp(FastAPI):
    """All answers pass through `labelled`. Added middleware would not see those to errors that nobody foresaw."""

    def __init__(self, labelled: Callable[[ASGIApp], ASGIApp], **fields: Any) -> None:
        super().__init__(**fields)
        self._labelled = labelled

    def build_middleware_stack(self) -> ASGIApp:
        return self._labelled(super().build_middleware_stack())


class Labelled:
    """ASGI middleware: every answer names the index that gave it, and is counted."""

    def __init__(self, app: ASGIApp, digest: str, metrics: RetrievalMetrics) -> None:
        self._app = app
        self._digest = digest
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def labelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Index-Digest"] = self._digest
                known = "endpoint" in scope  # else anybody could make new rows in the table
                self._metrics.answers[scope["path"] if known else "other", message["status"]] += 1
            await send(message)

        await self._app(scope, receive, labelled if scope["type"] == "http" else send)


def _check_size(queries: int, k: int, settings: RetrieveSettings) -> None:
    largest = min(settings.max_queries, settings.max_waiting)  # one that never fits must not be told to come back
    if queries > largest:
        detail = f"{queries} queries; at most {largest} fit into one request"
        raise ServiceError(413, "batch-too-large", "The batch is too large", detail)
    if k > settings.max_topk:
        detail = f"topk is {k}; at most {settings.max_topk} are given"
        fault = {"field": "topk", "expected": f"at most {settings.max_topk}"}
        raise ServiceError(422, "invalid-request", "The request does not fit the schema", detail, errors=[fault])
    if queries * k > settings.max_passages:
        detail = (
            f"{queries} queries with {k} passages each; at most {settings.max_passages} passages fit into one answer"
        )
        raise ServiceError(413, "batch-too-large", "The batch is too large", detail)


def _problem(error: RetrievalError) -> Response:
    """The error on the wire. Never 429, which some trainers take for the end, and never an empty result."""
    detail = _FOLDERS.sub("…/", str(error))  # where files lie is for the log
    match error:
        case OverloadedError():
            wait = {"Retry-After": str(ceil(error.retry_after_s))}
            return problem(503, "overloaded", "The service is busy", detail, wait)
        case DeadlineError():
            return problem(503, "deadline", "The answer is not there in time", detail, {"Retry-After": "1"})
        case PartialAnswerError():
            again = {"Retry-After": "5"}
            return problem(
                503, "rows-missing", "Some rows cannot be searched", detail, again, missing_rows=error.missing
            )
        case UnavailableError():
            return problem(503, "unavailable", "The service is not ready", detail, {"Retry-After": "5"})
        case QueryError():
            return problem(422, "invalid-request", "The query cannot be searched for", detail)
        case _:
            _log.error("the search failed", exc_info=error)
            return problem(500, "retrieval-failed", "The search failed", detail)


# All but the last part of an absolute path; not of a URL.
_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^\s/:;,'\"]+/)+")


def _body(model: type[Retrieve] | type[Observe]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": model.model_json_schema()}}}}
