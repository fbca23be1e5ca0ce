"""Reward routes of OpenRLHF and slime. Thin translations; what they share is in `serve/peer_rewards.py`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from configs.settings import ServeSettings
from serve.callers import Caller, caller
from serve.client_left import unless_client_leaves
from serve.errors import JUDGING, unfit
from serve.judging import JudgingService
from serve.peer_rewards import item_of, numbers, reward_samples, sooner, sought
from serve.peer_schemas import GetReward, GotReward, SlimeSample, SlimeScore
from serve.reward_schemas import DEFAULT_WEIGHTS
from serve.rewarding import Sought
from serve.rewards import weighted
from serve.strict_bodies import StrictRoute
from verifier.chat_text import question_of, response_in, trimmed

#: Seconds until an answer must be on its way: OpenRLHF waits 180, slime 120.
OPENRLHF_S, SLIME_S = 170.0, 110.0


def router(service: JudgingService, settings: ServeSettings) -> APIRouter:
    """`/get_reward`, `/slime` and `/reward/slime`."""
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/get_reward", responses=JUDGING)
    async def get_reward(
        request: Request,
        body: GetReward,
        asked: Annotated[Sought, Depends(sought)],
        asking: Annotated[Caller, Depends(caller)],
    ) -> GotReward:
        """Reward a batch of OpenRLHF's. Lists may be empty. If any sample was not judged, all of the request is 503."""
        samples = []
        for place, (query, prompt) in enumerate(zip(body.query, body.prompts, strict=True)):
            response = response_in(query, prompt)
            if response is None:
                raise unfit([{"field": f"query.{place}", "expected": f"a text that begins with prompts.{place}"}])
            label = body.labels[place] if body.labels else None
            samples.append(item_of(str(place), question_of(prompt), response, label, field=f"query.{place}"))
        work = reward_samples(service, samples, sooner(asked, OPENRLHF_S), caller=asking)
        rewards = await unless_client_leaves(request, work)
        scores = numbers(rewards, settings.retry_after_s)
        added = [weighted(reward.components, asked.weights) for reward in rewards]
        logs = {part: [parts[part] for parts in added] for part in DEFAULT_WEIGHTS.shares()}
        return GotReward(rewards=scores, scores=scores, extra_logs=logs)

    async def slime(
        request: Request,
        body: SlimeSample,
        asked: Annotated[Sought, Depends(sought)],
        asking: Annotated[Caller, Depends(caller)],
    ) -> SlimeScore:
        """Reward a sample of slime's. A sample that was not judged is 503."""
        item = item_of("0", question_of(body.prompt), trimmed(body.response), body.label, field="prompt")
        work = reward_samples(service, [item], sooner(asked, SLIME_S), caller=asking)
        [reward] = rewards = await unless_client_leaves(request, work)
        [score] = numbers(rewards, settings.retry_after_s)
        return SlimeScore(
            score=score,
            components=reward.components,
            judge_id=reward.judge_id,
            coherence_judge_id=reward.coherence_judge_id,
        )

    for path in ("/slime", "/reward/slime"):
        routes.add_api_route(path, slime, methods=["POST"], responses=JUDGING)
    return routes
