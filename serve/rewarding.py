"""Asking the judge what a reward needs to know, and nothing else."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from serve.callers import Caller
from serve.errors import ServiceError, unfit
from serve.judging import JudgingService
from serve.reward_schemas import DEFAULT_WEIGHTS, Accuracy, JudgeItem, Reward, TraceItem, Weights
from serve.rewards import judge_reward, trace_reward
from serve.stores import About, Asked
from verifier.types import Judgment

_MANY_CHARS = 10_000  # reading answers in more of them would keep other requests waiting


@dataclass(frozen=True, slots=True)
class Sought:
    """What a reward is made of, and how it is judged."""

    weights: Weights = DEFAULT_WEIGHTS
    accuracy: Accuracy = "verifier"
    seed: int | None = None  # in place of the judge's own
    deadline_s: float | None = None  # for all of it

    @property
    def asks(self) -> tuple[About, ...]:
        """What the judge is asked about each trace."""
        correctness: tuple[About, ...] = (
            ("correctness",) if self.weights.accuracy and self.accuracy == "verifier" else ()
        )
        return (*correctness, "coherence") if self.weights.coherence else correctness


async def reward_all(
    service: JudgingService, items: Sequence[TraceItem | JudgeItem], sought: Sought, *, caller: Caller
) -> list[Reward]:
    """One reward for each item, in order. What could not be judged has a status instead of a number.

    Raises:
        ServiceError: 413 if they can never fit into one request; 422 if coherence has a weight and nobody judges it here;
            503 with Retry-After if they do not fit now. Nothing is rewarded then.
    """
    traces = {place: item for place, item in enumerate(items) if isinstance(item, TraceItem)}
    if traces and "coherence" in sought.asks and service.coherence is None:
        raise unfit([{"field": "weights.coherence", "expected": "0: this service has no judge of coherence"}])
    asked = len(traces) * len(sought.asks)
    if max(asked, len(items)) > (largest := service.largest_of(caller)):
        detail = f"{len(items)} items, {asked} questions to the judge; at most {largest} fit into one request"
        raise ServiceError(413, "batch-too-large", "The batch is too large", detail)
    judged = await _judge(service, traces, sought, caller)

    def combine() -> list[Reward]:
        return [
            judge_reward(item)
            if isinstance(item, JudgeItem)
            else trace_reward(
                item,
                sought.weights,
                sought.accuracy,
                judged.get(("correctness", place)),
                judged.get(("coherence", place)),
            )
            for place, item in enumerate(items)
        ]

    return await asyncio.to_thread(combine) if sum(map(_characters, items)) > _MANY_CHARS else combine()


async def _judge(
    service: JudgingService, traces: dict[int, TraceItem], sought: Sought, caller: Caller
) -> dict[tuple[About, int], Judgment]:
    """Ask all questions about all traces, as one request."""
    questions = [(about, place) for about in sought.asks for place in traces]
    if not questions:
        return {}
    asked = [
        Asked(traces[place].case, sought.seed if traces[place].seed is None else traces[place].seed, about)
        for about, place in questions
    ]
    judgments = await service.answer_all(asked, caller=caller, deadline_s=sought.deadline_s)
    return dict(zip(questions, judgments, strict=True))


def _characters(item: TraceItem | JudgeItem) -> int:
    return len(item.response if isinstance(item, JudgeItem) else item.case.trace.render())
