"""The application: a judge behind `/verify`, and what operators need to know about it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, FastAPI, Request

from configs.settings import ServeSettings
from serve.admission import Admission
from serve.body_limit import BodyLimit
from serve.client_left import unless_client_leaves
from serve.errors import ServiceError, described, install
from serve.schemas import Health, Info, Judgments, Ready, VerifyMany, VerifyRequest
from verifier.judge import Judge
from verifier.types import Judgment

_PROBLEMS = described(
    {
        400: "The body is not text, or is nested too deeply, to be read as JSON.",
        408: "The body did not arrive in time.",
        413: "The request or its batch is too large.",
        422: "The request does not fit the schema.",
        500: "The service met an error of its own.",
        503: "The service is busy; come back after Retry-After seconds.",
    }
)


def create_app(judge: Judge, settings: ServeSettings, info: Info) -> FastAPI:
    """Build the service around a loaded judge, which it closes when it stops."""
    admission = Admission(settings.max_queue, settings.retry_after_s)
    largest = min(settings.max_batch, settings.max_queue)  # one that never fits must not be told to come back

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await judge.warm_up()
        yield
        await judge.aclose()

    app = FastAPI(
        title="medverify",
        version=info.version,
        summary="Judges medical reasoning, with evidence. A research tool, not a medical device.",
        lifespan=lifespan,
    )
    install(app)
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes, seconds=settings.body_s)

    @app.post("/verify", responses=_PROBLEMS)
    async def verify(request: Request, body: Annotated[VerifyRequest, Body()]) -> Judgment | Judgments:
        """Judge one case, or several at once.

        Every case ends in a judgment. One that could not be judged has a status other than `scored`, and neither a verdict
        nor a probability: a failure is never a number.
        """
        cases = body.cases if isinstance(body, VerifyMany) else [body.case]
        if len(cases) > largest:
            detail = f"{len(cases)} cases; at most {largest} fit into one request"
            raise ServiceError(413, "batch-too-large", "The batch is too large", detail)
        with admission.admit(len(cases)):
            judging = asyncio.gather(*(judge.verify(case, body.seed) for case in cases))
            judgments = await unless_client_leaves(request, _collect(judging))
        return Judgments(judgments=judgments) if isinstance(body, VerifyMany) else judgments[0]

    @app.get("/health")
    async def health() -> Health:
        """The process is alive."""
        return Health()

    @app.get("/ready")
    async def ready() -> Ready:
        """The judge is loaded and takes cases: this service does not listen before it is."""
        return Ready(cases_in_flight=admission.in_flight)

    @app.get("/info")
    async def about() -> Info:
        """What judges here: ids and digests that make a judgment repeatable, and how good it was measured to be."""
        return info

    return app


async def _collect(judging: "asyncio.Future[list[Judgment]]") -> list[Judgment]:
    return await judging
