"""What operators and programs ask a service about itself."""

from typing import Annotated

from fastapi import APIRouter, Depends

from serve.admission import draining
from serve.callers import Caller, observer
from serve.errors import READING, described
from serve.judging import JudgingService
from serve.schemas import Health, Info, Ready


def router(service: JudgingService, info: Info) -> APIRouter:
    """`/health`, `/ready`, `/info`."""
    routes = APIRouter()

    @routes.get("/health")
    async def health() -> Health:
        """The process is alive."""
        return Health()

    @routes.get("/ready", responses=described({503: "The service finishes what is under way and then stops."}))
    async def ready() -> Ready:
        """The judge is loaded and takes cases: this service does not listen before it is."""
        if service.draining:
            raise draining()
        return Ready(cases_in_flight=service.admission.in_flight)

    @routes.get("/info", responses=READING)
    async def about(_: Annotated[Caller, Depends(observer)]) -> Info:
        """What judges here: ids and digests that make a judgment repeatable, and how good it was measured to be."""
        return info

    return routes
