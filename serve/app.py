"""The application: a judge behind HTTP, its routes put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from configs.settings import ServeSettings
from serve.body_limit import BodyLimit
from serve.errors import install
from serve.judging import JudgingService
from serve.routes import operations, verify
from serve.schemas import Info
from verifier.judge import Judge


def create_app(judge: Judge, settings: ServeSettings, info: Info) -> FastAPI:
    """Build the service around a loaded judge, which it closes when it stops."""
    service = JudgingService(judge, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.aclose()

    app = FastAPI(
        title="medverify",
        version=info.version,
        summary="Judges medical reasoning, with evidence. A research tool, not a medical device.",
        lifespan=lifespan,
    )
    install(app)
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_s)
    app.include_router(verify.router(service))
    app.include_router(operations.router(service, info))
    return app
