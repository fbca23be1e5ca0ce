"""`/jobs`: long batches that nobody waits for at an open connection."""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from configs.settings import ServeSettings
from serve.callers import ANONYMOUS, Caller, caller, reader
from serve.errors import JUDGING, READING, ServiceError, described
from serve.jobs.files import Draft
from serve.jobs.job import Job
from serve.jobs.keeper import JobKeeper
from serve.jobs.schemas import JobState, JobStates
from serve.jobs.uploads import LINES, read_json, too_many, write_lines
from serve.strict_bodies import StrictRoute

PATH = "/jobs"
_NOT_FOUND = described({404: "There is no such job, or it is another's."})
_SEEN = {**READING, **_NOT_FOUND}
_CHANGED = {**JUDGING, **_NOT_FOUND}
_NO_JOBS = described({404: "This service keeps no jobs.", 415: "The body is neither JSON nor JSON lines."})
_CASE = {"$ref": "#/components/schemas/Case"}
_EXAMPLE = {"question": "What does warfarin inhibit?", "trace": "Warfarin blocks the recycling of vitamin K."}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["cases"],
                    "additionalProperties": False,
                    "properties": {
                        "cases": {"type": "array", "minItems": 1, "items": _CASE},
                        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**31 - 1},
                    },
                },
                "example": {"cases": [_EXAMPLE], "seed": 0},
            },
            LINES: {"schema": {"type": "string", "description": "A case a line."}},
        },
    }
}


def router(keeper: JobKeeper, settings: ServeSettings) -> APIRouter:
    """Hand in, watch, fetch, cancel, retry, delete."""
    routes = APIRouter(route_class=StrictRoute)
    days = settings.jobs.retention_days

    def job_of(id: str, asking: Caller, *, to_change: bool = False) -> Job:
        job = keeper.find(id)
        if job is None or not (_owns(asking, job) or (asking.sees_all and not to_change)):
            raise ServiceError(404, "no-such-job", "No such job", "no job with this id is kept for you")
        return job

    @routes.post(PATH, status_code=202, responses={**JUDGING, **_NO_JOBS}, openapi_extra=_BODY)
    async def hand_in(
        request: Request,
        response: Response,
        asking: Annotated[Caller, Depends(caller)],
        seed: Annotated[
            int | None,
            Query(ge=0, le=2**31 - 1, description="Sampling seed for JSON lines, which have no room for it."),
        ] = None,
    ) -> JobState:
        """Have cases judged in the background: as `{"cases": […], "seed": …}`, or as JSON lines of any length, a case a line.

        The answer comes when all cases are on the disk; from then on the job survives a restart of the service.
        """
        draft = await keeper.draft(secrets.token_hex(12))
        try:
            total, seed = await received(request, draft, seed)
            job = await keeper.add(draft, caller=asking, seed=seed, total=total)
        except OSError as error:
            raise keeper.unwritable(error) from error
        except ClientDisconnect as error:
            raise ServiceError(499, "client-left", "The client left", "the body did not arrive as a whole") from error
        finally:
            await keeper.discard(draft)
        response.headers["Location"] = f"{PATH}/{job.spec.id}"
        return job.state(days)

    async def received(request: Request, draft: Draft, seed: int | None) -> tuple[int, int | None]:
        """The number of cases, which are in the draft now, and the seed that was asked for."""
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == LINES:
            async for piece in request.stream():
                await asyncio.to_thread(draft.receive, piece)
                keeper.check_room()
            return await asyncio.to_thread(write_lines, draft, settings.jobs.max_cases, settings.max_body_bytes), seed
        if kind != "application/json":
            raise ServiceError(
                415, "unknown-content", "The body is of an unknown kind", f"send application/json or {LINES}"
            )
        body = await read_json(request, settings.max_body_bytes)
        if len(body.cases) > settings.jobs.max_cases:
            raise too_many(settings.jobs.max_cases)
        return await asyncio.to_thread(draft.write_cases, body.cases), body.seed if body.seed is not None else seed

    @routes.get(PATH, responses=READING)
    async def jobs(asking: Annotated[Caller, Depends(reader)]) -> JobStates:
        """Jobs, the newest first: one's own, or everybody's with a key of scope `read`."""
        return JobStates(jobs=[job.state(days) for job in keeper.jobs() if asking.sees_all or _owns(asking, job)])

    @routes.get(PATH + "/{id}", responses=_SEEN)
    async def job(id: str, asking: Annotated[Caller, Depends(reader)]) -> JobState:
        """How far a job is."""
        return job_of(id, asking).state(days)

    @routes.get(
        PATH + "/{id}/results",
        response_class=StreamingResponse,
        responses={200: {"content": {LINES: {"schema": {"type": "string"}}}}, **_SEEN},
    )
    async def results(id: str, asking: Annotated[Caller, Depends(reader)]) -> StreamingResponse:
        """The results so far, a judgment a line, in the order in which they were made.

        `index` is the position of the case. Whatever is not `scored` was not judged, and has neither verdict nor probability.
        """
        pieces: Iterator[bytes] = job_of(id, asking).files.results()
        return StreamingResponse(pieces, media_type=LINES)

    @routes.delete(PATH + "/{id}", responses=_CHANGED)
    async def cancel(
        id: str,
        asking: Annotated[Caller, Depends(caller)],
        forget: Annotated[bool, Query(description="Delete its cases and results at once, too.")] = False,
    ) -> JobState:
        """Stop a job. Its results so far are kept, unless they are to be forgotten; one that has ended stays as it is."""
        job = job_of(id, asking, to_change=True)
        await (keeper.forget(job) if forget else keeper.cancel(job))
        return job.state(days)

    @routes.post(PATH + "/{id}/retry", status_code=202, responses=_CHANGED)
    async def retry(id: str, asking: Annotated[Caller, Depends(caller)]) -> JobState:
        """Judge again what an outage or a deadline left without a judgment, and what a cancelled job had left."""
        job = job_of(id, asking, to_change=True)
        await keeper.retry(job)
        return job.state(days)

    return routes


def _owns(asking: Caller, job: Job) -> bool:
    """Whether it is the caller's own job; those from before there were keys are everybody's."""
    return job.spec.caller in (asking.name, ANONYMOUS)
