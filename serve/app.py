"""The application: a judge behind HTTP, its routes put together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI

from configs.settings import RetrieveSettings, ServeSettings
from serve.body_limit import BodyLimit
from serve.callers import Door, is_loopback, searcher
from serve.engine_health import EngineHealth
from serve.errors import JUDGING, install
from serve.jobs.keeper import JobKeeper
from serve.judging import JudgingService
from serve.judging_metrics import JudgingMetrics
from serve.keys_first import KeysFirst
from serve.known_parameters import known_parameters
from serve.outermost import WrappedApp
from serve.request_log import RequestLog
from serve.routes import jobs, judgments, operations, page, peers, rerank, reward, searches, select, stream, verify
from serve.schemas import Info
from serve.searching import Searching, install_searching
from serve.security_headers import SecurityHeaders
from serve.served_judge import Replicas, ServedJudge, one
from serve.stores import Stores
from serve.tracing import Tracing, tracing_of
from verifier.judge import Judge


def create_app(
    judge: ServedJudge,
    settings: ServeSettings,
    info: Info,
    stores: Stores | None = None,
    *,
    coherence: ServedJudge | None = None,
    retrieve: RetrieveSettings | None = None,
    tracing: Tracing | None = None,
    replicas: Replicas = one,
) -> FastAPI:
    """Build the service around a loaded judge, which it closes when it stops, as it does the stores.

    Args:
        judge: of correctness.
        settings: of the service.
        info: what it tells about itself.
        stores: without them nothing is kept, and everybody is let in.
        coherence: judge of coherence, over the same engine and retriever.
        retrieve: limits of the searches that are passed through to the judge's retriever.
        tracing: follows requests; None: as the environment asks for.
        replicas: counts the judges that can be asked.
    """
    stores = stores or Stores()
    tracing = tracing or tracing_of()
    health = EngineHealth(judge) if isinstance(judge, Judge) else None  # replicas elsewhere are watched there
    service = JudgingService(judge, settings, stores, coherence=coherence, tracing=tracing, health=health)
    metrics = JudgingMetrics(service, info)
    keeper = JobKeeper(service, settings, stores.jobs)
    door = Door(stores.keys, settings.keys, reachable=not is_loopback(settings.host))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as closing:  # in the reverse order, each whatever becomes of the others
            for part in (tracing, stores, service):
                closing.push_async_callback(part.aclose)
            closing.callback(door.close)
            await service.start()
            closing.callback(asyncio.create_task(stores.keep_tidy()).cancel)
            closing.push_async_callback(keeper.aclose)
            await keeper.start()
            yield

    app = WrappedApp(
        partial(RequestLog, metrics=metrics, tracing=tracing, lines=settings.access_log),
        title="medverify",
        version=info.version,
        summary="Judges medical reasoning, with evidence. A research tool, not a medical device.",
        lifespan=lifespan,
        dependencies=[Depends(known_parameters)],
        docs_url=None,  # these pages load scripts from elsewhere, and the page on this origin holds a key
        redoc_url=None,
    )
    app.state.judging = service  # for who stops the server, see `serve.listen.Drain`
    install(app)
    app.add_middleware(
        BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_s, larger={jobs.PATH: settings.jobs.max_bytes}
    )
    app.add_middleware(KeysFirst, door=door)
    app.add_middleware(SecurityHeaders)
    app.include_router(verify.router(service))
    app.include_router(stream.router(service))
    app.include_router(page.router())
    app.include_router(select.router(service))
    app.include_router(rerank.router(service, settings, info.model))
    app.include_router(jobs.router(keeper, settings))
    app.include_router(judgments.router(stores.audit))
    app.include_router(reward.router(service))
    app.include_router(peers.router(service, settings))
    install_searching(app)
    searching = Searching(judge.retriever, retrieve or RetrieveSettings())
    keyed: dict[int | str, Any] = {status: JUDGING[status] for status in (401, 403)}
    app.include_router(searches.router(searching), dependencies=[Depends(searcher)], responses=keyed)
    app.include_router(operations.router(service, info, metrics, door, replicas))
    return app
