"""What operators and programs ask a service about itself."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from fastapi.responses import PlainTextResponse

from serve.admission import draining
from serve.callers import Caller, Door, observer, reader
from serve.errors import READING, ServiceError, described
from serve.exposition import MEDIA_TYPE
from serve.judging import JudgingService
from serve.judging_metrics import JudgingMetrics
from serve.schemas import Health, Info, Ready
from serve.served_judge import Replicas, one
from serve.strict_bodies import StrictRoute


def router(
    service: JudgingService, info: Info, metrics: JudgingMetrics, door: Door, replicas: Replicas = one
) -> APIRouter:
    """`/health`, `/ready`, `/info`, `/metrics`."""
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/health")
    @routes.head("/health", include_in_schema=False)
    async def health() -> Health:
        """The process is alive."""
        return Health()

    @routes.get("/ready", responses=described({503: "No judgment can be given, or the service is about to stop."}))
    @routes.head("/ready", include_in_schema=False)
    async def ready() -> Ready:
        """A judge is loaded and takes cases, its engine works, somebody may send them, and what has to be written down can be.

        A service of one process does not listen before its judge is loaded.
        """
        if service.draining:
            raise draining()
        await door.check()
        if service.stores.audit is not None:
            await service.stores.audit.check()
        await service.check_engine()
        running = await replicas()
        if not running:
            raise ServiceError(
                503, "unavailable", "No judge can be asked", "no replica is running", {"Retry-After": "5"}
            )
        return Ready(cases_in_flight=service.admission.in_flight, replicas=running)

    @routes.get("/info", responses=READING)
    async def about(_: Annotated[Caller, Depends(reader)]) -> Info:
        """What judges here: ids and digests that make a judgment repeatable, and how good it was measured to be."""
        return info.model_copy(update={"replicas": await replicas()})

    @routes.get("/metrics", response_class=PlainTextResponse, responses=READING)
    async def measured(_: Annotated[Caller, Depends(observer)]) -> Response:
        """Counts and times per stage, for Prometheus."""
        return Response(metrics.text(), media_type=MEDIA_TYPE)

    return routes
