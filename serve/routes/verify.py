"""`POST /verify`: our own wire format."""

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request

from serve.callers import Caller, caller
from serve.client_left import unless_client_leaves
from serve.errors import JUDGING
from serve.judging import JudgingService
from serve.schemas import Judgments, VerifyMany, VerifyRequest
from verifier.types import Judgment


def router(service: JudgingService) -> APIRouter:
    """Judge one case, or several at once."""
    routes = APIRouter()

    @routes.post("/verify", responses=JUDGING)
    async def verify(
        request: Request, body: Annotated[VerifyRequest, Body()], asking: Annotated[Caller, Depends(caller)]
    ) -> Judgment | Judgments:
        """Judge one case, or several at once.

        Every case ends in a judgment. One that could not be judged has a status other than `scored`, and neither a verdict
        nor a probability: a failure is never a number.
        """
        cases = body.cases if isinstance(body, VerifyMany) else [body.case]
        judging = service.judge_all(cases, caller=asking, seed=body.seed, deadline_s=body.deadline_s)
        judgments = await unless_client_leaves(request, judging)
        return Judgments(judgments=judgments) if isinstance(body, VerifyMany) else judgments[0]

    return routes
