"""`POST /reward`: rewards for traces and for policies that learn to judge, in our own wire format."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from serve.callers import Caller, caller
from serve.client_left import unless_client_leaves
from serve.errors import JUDGING
from serve.judging import JudgingService
from serve.reward_schemas import RewardRequest, Rewards
from serve.rewarding import Sought, reward_all
from serve.strict_bodies import StrictRoute


def router(service: JudgingService) -> APIRouter:
    """Reward one item or several."""
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/reward", responses=JUDGING)
    async def reward(request: Request, body: RewardRequest, asking: Annotated[Caller, Depends(caller)]) -> Rewards:
        """Reward traces, or what a policy that judges wrote.

        Every item ends in a reward or in a status that says why there is none: a failure is never a number.
        """
        sought = Sought(body.weights, body.accuracy, body.seed, body.deadline_s)
        rewards = await unless_client_leaves(request, reward_all(service, body.items, sought, caller=asking))
        return Rewards(rewards=rewards)

    return routes
