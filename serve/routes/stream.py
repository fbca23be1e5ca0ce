"""`POST /verify/stream`: one case, watched while it is judged."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from fastapi.responses import StreamingResponse

from serve import event_stream
from serve.callers import Caller, caller
from serve.client_left import unless_client_leaves
from serve.errors import JUDGING, ServiceError, problem
from serve.event_stream import EventStream, event
from serve.judging import JudgingService
from serve.schemas import VerifyOne
from serve.strict_bodies import StrictRoute
from serve.watching import Admitted, Silence, Told
from verifier.events import Decided, Opened, Searched, Thought
from verifier.types import Judgment

logger = logging.getLogger(__name__)

_EXAMPLE = b"".join(
    (
        event("admitted", {"in_flight": 1, "places": 16}),
        event("opened", {"waited_s": 0.0}),
        event("thought", {"text": "The reasoning claims that …", "seconds": 2.1}),
        event("searched", {"search": {"query": "warfarin", "passages": [], "omitted": 0}, "seconds": 0.02}),
        event("decided", {"verdict": 1, "p_correct": 0.83, "forced": False, "seconds": 0.4}),
        event("judgment", {"id": "case-1", "status": "scored", "verdict": 1, "p_correct": 0.83}),
    )
).decode()
_RESPONSES: dict[int | str, dict[str, Any]] = {
    **JUDGING,
    200: {
        "description": "Server-sent events; the last is `judgment` or `problem`.",
        # Without a type: OpenAPI 3.1 has no word for a stream, and what reads it as one asks every event for the type.
        "content": {event_stream.MEDIA_TYPE: {"schema": {"description": "Events with JSON."}, "example": _EXAMPLE}},
    },
}


def router(service: JudgingService) -> APIRouter:
    """Judge one case before the caller's eyes."""
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/verify/stream", responses=_RESPONSES, response_class=StreamingResponse)
    async def verify_stream(
        request: Request, body: Annotated[VerifyOne, Body()], asking: Annotated[Caller, Depends(caller)]
    ) -> EventStream:
        """Judge one case and send what happens, as it happens, as server-sent events.

        `admitted`, `opened`, then `thought` and `searched` in the order of the episode, `decided` where there is a verdict, and
        the whole `judgment`. A judgment that is not `scored` is a judgment all the same. An error after the first event ends
        the stream with `problem`; one before it is an ordinary problem with its status. Whoever hangs up cancels the work.
        """
        told = service.watch(body.case, caller=asking, seed=body.seed, deadline_s=body.deadline_s)
        # Whoever is refused is told so by the status, so nothing is sent before the first event.
        first = await unless_client_leaves(request, anext(told))
        return EventStream(_sent(first, told, service.judge.max_together), told)

    return routes


async def _sent(
    first: Told | Silence | Judgment, others: AsyncIterator[Told | Silence | Judgment], places: int
) -> AsyncIterator[bytes]:
    yield _wire(first, places)
    try:
        async for one in others:
            yield _wire(one, places)
    except ServiceError as error:
        yield _problem(error)
    except Exception:
        logger.exception("a watched case ended in an unexpected error")
        detail = "The service met an error of its own; it is in its log."
        yield _problem(ServiceError(500, "internal", "Internal error", detail))


def _problem(error: ServiceError) -> bytes:
    answer = problem(error.status, error.kind, error.title, error.detail, **error.more)
    return event("problem", json.loads(bytes(answer.body)))


def _wire(told: Told | Silence | Judgment, places: int) -> bytes:
    name: str
    data: dict[str, Any]
    match told:
        case Silence():
            return event_stream.ALIVE
        case Admitted(in_flight):
            name, data = "admitted", {"in_flight": in_flight, "places": places}
        case Opened(waited_s):
            name, data = "opened", {"waited_s": waited_s}
        case Thought(text, seconds):
            name, data = "thought", {"text": text, "seconds": seconds}
        case Searched(search, seconds):
            name, data = "searched", {"search": search.model_dump(mode="json"), "seconds": seconds}
        case Decided(label, p_correct, forced, seconds):
            name, data = "decided", {"verdict": label, "p_correct": p_correct, "forced": forced, "seconds": seconds}
        case Judgment():
            name, data = "judgment", told.model_dump(mode="json")
    return event(name, data)
