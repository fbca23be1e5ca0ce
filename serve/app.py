"""The application: a judge behind HTTP, its routes put together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from configs.settings import ServeSettings
from serve.body_limit import BodyLimit
from serve.callers import Door, is_loopback
from serve.errors import install
from serve.jobs.keeper import JobKeeper
from serve.judging import JudgingService
from serve.keys_first import KeysFirst
from serve.routes import jobs, judgments, operations, rerank, select, verify
from serve.schemas import Info
from serve.security_headers import SecurityHeaders
from serve.stores import Stores
from verifier.judge import Judge


def create_app(judge: Judge, settings: ServeSettings, info: Info, stores: Stores | None = None) -> FastAPI:
    """Build the service around a loaded judge, which it closes when it stops, as it does the stores.

    Without stores nothing is kept, and everybody is let in.
    """
    stores = stores or Stores()
    service = JudgingService(judge, settings, stores)
    keeper = JobKeeper(service, settings, stores.jobs)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        tidying = asyncio.create_task(stores.keep_tidy())
        await keeper.start()
        yield
        await keeper.aclose()
        tidying.cancel()
        await service.aclose()
        await stores.aclose()

    app = FastAPI(
        title="medverify",
        version=info.version,
        summary="Judges medical reasoning, with evidence. A research tool, not a medical device.",
        lifespan=lifespan,
    )
    install(app)
    app.add_middleware(
        BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_s, larger={jobs.PATH: settings.jobs.max_bytes}
    )
    app.state.door = Door(stores.keys, settings.keys, reachable=not is_loopback(settings.host))
    app.add_middleware(KeysFirst, door=app.state.door)
    app.add_middleware(SecurityHeaders)
    app.include_router(verify.router(service))
    app.include_router(select.router(service))
    app.include_router(rerank.router(service, settings, info.model))
    app.include_router(jobs.router(keeper, settings))
    app.include_router(judgments.router(stores.audit))
    app.include_router(operations.router(service, info))
    return app
