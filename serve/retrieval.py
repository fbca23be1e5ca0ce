"""The retrieval service: an index behind the routes that trainers' clients already call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter

from fastapi import FastAPI, Response
from starlette.datastructures import MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from configs.settings import RetrieveSettings
from retrieval.local import LocalRetriever
from retrieval.passage import RetrievalError, UnavailableError
from serve.body_limit import BodyLimit
from serve.errors import install
from serve.exposition import MEDIA_TYPE
from serve.known_rows import KnownRows
from serve.outermost import WrappedApp, route_of
from serve.retrieval_metrics import RetrievalMetrics
from serve.retrieval_schemas import RetrievalInfo, RetrievalReady
from serve.routes import searches
from serve.schemas import Health
from serve.searching import DIGEST_HEADER, SEARCHING, Searching, install_searching


def create_retrieval_app(retriever: LocalRetriever, settings: RetrieveSettings, info: RetrievalInfo) -> FastAPI:
    """Build the service around an opened index, which it closes when it stops."""
    metrics = RetrievalMetrics(retriever)
    known = KnownRows(retriever, deadline_s=settings.deadline_s)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await retriever.aclose()

    app = WrappedApp(
        partial(Labelled, digest=retriever.digest, metrics=metrics),
        title="medverify retrieval",
        version=info.version,
        summary="Finds passages of a medical corpus. A research tool, not a medical device.",
        lifespan=lifespan,
    )
    install(app)
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_s)

    install_searching(app, reasons=True)
    searching = Searching(retriever, settings)
    app.include_router(searches.router(searching))
    # The same, called without FastAPI's dependency machinery, which costs as much as the rest of the request. The route
    # above is the one that the description is made from.
    app.router.routes.insert(0, Route("/retrieve", searching.retrieve, methods=["POST"]))

    @app.get("/health")
    @app.head("/health", include_in_schema=False)
    async def health() -> Health:
        """The process is alive."""
        return Health()

    @app.get("/ready", responses={503: SEARCHING[503]})
    @app.head("/ready", include_in_schema=False)
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
        return Response(metrics.text(), media_type=MEDIA_TYPE)

    return app


class Labelled:
    """ASGI middleware: every answer names the index that gave it, and is counted."""

    def __init__(self, app: ASGIApp, digest: str, metrics: RetrievalMetrics) -> None:
        self._app = app
        self._digest = digest
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = perf_counter()

        async def labelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[DIGEST_HEADER] = self._digest
                self._metrics.answered(route_of(scope), message["status"], perf_counter() - arrived)
            await send(message)

        await self._app(scope, receive, labelled if scope["type"] == "http" else send)
