"""Rewards for a trainer: whatever goes wrong with the judge is a reward that is missing, never an error and never a number.

A policy that writes nothing did that itself: its reward is 0, as on the service's own routes for trainers.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from medverify.client import AsyncClient
from medverify.replies import COMPONENTS, Reward, TraceItem
from medverify.trainers.samples import EMPTY
from verifier.service import RemoteJudgeError, UnauthorisedError
from verifier.types import Status

logger = logging.getLogger(__name__)

NOTHING_TO_JUDGE = "nothing_to_judge"  # status of a completion that cannot be sent: too long, or its question is empty


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reward is made of."""

    weights: Mapping[str, float] | None = None  # of accuracy, coherence and format; the service's own if None
    accuracy: Literal["verifier", "label"] | None = None  # what accuracy is; the service's own choice if None
    seed: int | None = None
    deadline_s: float | None = field(default=None)  # for a batch; the client's own if None


async def rewards_of(client: AsyncClient, items: Sequence[TraceItem | str], wanted: Wanted) -> list[Reward]:
    """A reward for each item, in order; without a number where it was not judged.

    Args:
        client: of the service.
        items: what to ask, or why it cannot be asked.
        wanted: what a reward is made of.
    """
    asked = [(place, item) for place, item in enumerate(items) if isinstance(item, TraceItem)]
    found = {place: _unasked(str(place), item) for place, item in enumerate(items) if isinstance(item, str)}
    if asked:
        try:
            rewards = await client.reward(
                [item for _, item in asked],
                weights=wanted.weights,
                accuracy=wanted.accuracy,
                seed=wanted.seed,
                deadline_s=wanted.deadline_s,
            )
        except RemoteJudgeError as error:
            kind = type(error).__name__.removesuffix("Error").lower()
            logger.log(
                logging.ERROR if isinstance(error, UnauthorisedError) else logging.WARNING,
                "none of %d completions was judged: %s",
                len(asked),
                error,
            )
            rewards = [_missing(item.id or "", kind, str(error)) for _, item in asked]
        found |= {place: reward for (place, _), reward in zip(asked, rewards, strict=True)}
    rewards = [found[place] for place in range(len(items))]
    missing = Counter(reward.status for reward in rewards if not reward.judged)
    if missing:
        logger.warning("%d of %d completions have no reward: %s", missing.total(), len(rewards), dict(missing))
    return rewards


def _unasked(id: str, why: str) -> Reward:
    if why != EMPTY:
        return _missing(id, NOTHING_TO_JUDGE, why)
    return Reward(id=id, status=Status.SCORED, reward=0.0, components=dict.fromkeys(COMPONENTS, 0.0), detail=why)


def _missing(id: str, status: str, detail: str) -> Reward:
    return Reward(id=id, status=status, reward=None, components=dict.fromkeys(COMPONENTS), detail=detail)
