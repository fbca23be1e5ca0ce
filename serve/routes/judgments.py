"""`GET /judgments`: what was judged, from the audit log."""

import logging
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query

from serve.audit import AuditLog
from serve.audit_schemas import AuditedJudgment, JudgmentId, JudgmentPage
from serve.audit_store import Wanted
from serve.callers import Caller, reader
from serve.errors import READING, ServiceError, described
from serve.strict_bodies import StrictRoute
from verifier.types import Status

logger = logging.getLogger(__name__)

_RETRY_AFTER_S = 30
_NOT_FOUND = described({404: "No such judgment is kept, or it is another's."})


def router(log: AuditLog | None) -> APIRouter:
    """The list and the single judgment. Without a log there are none."""
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/judgments", responses=READING)
    async def judgments(
        asking: Annotated[Caller, Depends(reader)],
        status: Annotated[Status | None, Query(description="Only judgments with this status.")] = None,
        verdict: Annotated[Literal["0", "1"] | None, Query(description="Only judgments with this verdict.")] = None,
        before: Annotated[JudgmentId | None, Query(description="Only older ones: `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="The most to return.")] = 50,
    ) -> JudgmentPage:
        """Judgments that were given, newest first: one's own, or everybody's with a key of scope `read`.

        A page may be short, even empty, and have a `next` all the same: a rare filter is followed a bounded way at a time.
        """
        if log is None:
            return JudgmentPage(judgments=[], next=None)
        wanted = Wanted(status, _VERDICTS[verdict], None if asking.sees_all else asking.name)
        try:
            return await log.page(wanted, before=before, limit=limit)
        except OSError as error:
            raise _unreadable(error) from error

    @routes.get("/judgments/{id}", responses={**READING, **_NOT_FOUND})
    async def judgment(id: JudgmentId, asking: Annotated[Caller, Depends(reader)]) -> AuditedJudgment:
        """One judgment with the passages it relied on; `id` is the `judgment_id` of the answer."""
        try:
            found = await log.find(id) if log is not None else None
        except OSError as error:
            raise _unreadable(error) from error
        if found is None or not (asking.sees_all or found.caller == asking.name):
            raise ServiceError(404, "no-such-judgment", "No such judgment", "no judgment with this id is kept for you")
        return found

    return routes


_VERDICTS: dict[str | None, Literal[0, 1] | None] = {None: None, "0": 0, "1": 1}


def _unreadable(error: OSError) -> ServiceError:
    logger.error("the audit log cannot be read: %s", error)
    detail = "the log cannot be read at the moment"
    return ServiceError(
        503, "audit-unavailable", "The audit log cannot be read", detail, {"Retry-After": str(_RETRY_AFTER_S)}
    )
