"""`POST /verify`: our own wire format, and NeMo Gym's, which is known by its body."""

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request, Response

from serve.callers import Caller, caller
from serve.client_left import unless_client_leaves
from serve.errors import JUDGING, unfit
from serve.judging import JudgingService
from serve.nemo_gym import verify_rollout
from serve.nemo_gym_schemas import NemoGymRewarded, NemoGymVerify
from serve.peer_rewards import sought
from serve.rewarding import Sought
from serve.schemas import Judgments, VerifyMany, VerifyRequest
from serve.strict_bodies import StrictRoute
from verifier.types import Judgment


def router(service: JudgingService) -> APIRouter:
    """Judge one case, or several at once."""
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/verify", responses=JUDGING, response_model=Judgment | Judgments | NemoGymRewarded)
    async def verify(
        request: Request,
        body: Annotated[VerifyRequest, Body()],
        asked: Annotated[Sought, Depends(sought)],
        asking: Annotated[Caller, Depends(caller)],
    ) -> Judgment | Judgments | Response:
        """Judge one case, or several at once.

        Every case ends in a judgment. One that could not be judged has a status other than `scored`, and neither a verdict
        nor a probability: a failure is never a number.

        A body with `responses_create_params` is a rollout of NeMo Gym's, and comes back with a reward. The parameters of the
        address are for it only.
        """
        if isinstance(body, NemoGymVerify):
            return await unless_client_leaves(request, verify_rollout(service, body, asked, caller=asking))
        if request.query_params:
            detail = "no parameters in the address: they are for NeMo Gym's rollouts, and have no say here"
            raise unfit([{"field": name, "expected": detail} for name in request.query_params])
        cases = body.cases if isinstance(body, VerifyMany) else [body.case]
        judging = service.judge_all(cases, caller=asking, seed=body.seed, deadline_s=body.deadline_s)
        judgments = await unless_client_leaves(request, judging)
        return Judgments(judgments=judgments) if isinstance(body, VerifyMany) else judgments[0]

    return routes
