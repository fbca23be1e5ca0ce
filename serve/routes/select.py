"""`POST /select`: which of several candidates to keep."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request

from serve.callers import Caller, caller
from serve.choosing import choose
from serve.choosing_schemas import Selected, SelectRequest
from serve.client_left import unless_client_leaves
from serve.distinct import judge_distinct
from serve.errors import JUDGING
from serve.judging import JudgingService
from serve.strict_bodies import StrictRoute
from verifier.types import Case, Judgment


def router(service: JudgingService) -> APIRouter:
    """Choose among candidates."""
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/select", responses=JUDGING)
    async def select(
        request: Request, body: Annotated[SelectRequest, Body()], asking: Annotated[Caller, Depends(caller)]
    ) -> Selected:
        """Choose among candidates for one question, by what the judge thinks of each; the votes are shown.

        A candidate that could not be judged has no say and is counted. Where none was judged nothing is chosen, and `reason`
        says why. The order of the candidates changes neither scores nor choice.
        """
        cases = body.cases
        judgments = list[Judgment]() if body.strategy == "majority" else await judged(request, body, cases, asking)
        return await asyncio.to_thread(choose, body, cases, judgments)  # long traces are read for their answers

    async def judged(request: Request, body: SelectRequest, cases: list[Case], asking: Caller) -> list[Judgment]:
        judging = judge_distinct(service, cases, caller=asking, seed=body.seed, deadline_s=body.deadline_s)
        return await unless_client_leaves(request, judging)

    return routes
