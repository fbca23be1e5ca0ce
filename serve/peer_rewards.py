"""Rewards for trainers whose protocols have one number for each sample, and no word for a sample that was not judged."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query
from pydantic import ValidationError

from serve.callers import Caller
from serve.errors import ServiceError, expected_by, unfit
from serve.judging import JudgingService
from serve.reward_schemas import DEFAULT_WEIGHTS, Accuracy, Components, Reward, Share, TraceItem, Weights
from serve.rewarding import Sought, reward_all
from serve.schemas import SeedInAddress
from verifier.types import OUTAGES, Status

_LONGEST_LABEL = 10_000  # characters; a data set's record in its place is no answer

_Weight = Annotated[Share | None, Query(description="If any weight is given, those that are not are 0.")]


def sought(  # noqa: PLR0917 - FastAPI calls it, by name
    accuracy: Annotated[Accuracy, Query(description="What accuracy is: the judge's p(1), or the label's match.")] = (
        "verifier"
    ),
    accuracy_weight: _Weight = None,
    coherence_weight: _Weight = None,
    format_weight: _Weight = None,
    seed: Annotated[SeedInAddress, Query()] = None,
    deadline_s: Annotated[
        float | None, Query(gt=0, allow_inf_nan=False, description="Seconds for the request.")
    ] = None,
) -> Sought:
    """What a reward is made of, from the address: the body belongs to the trainer.

    Raises:
        ServiceError: 422 if all weights are 0.
    """
    given = {"accuracy": accuracy_weight, "coherence": coherence_weight, "format": format_weight}
    named = {name: weight for name, weight in given.items() if weight is not None}
    if named and not sum(named.values()) > 0:
        raise unfit([{"field": f"{name}_weight", "expected": "at least one weight above 0"} for name in named])
    return Sought(Weights(**named) if named else DEFAULT_WEIGHTS, accuracy, seed, deadline_s)


def sooner(asked: Sought, patience_s: float) -> Sought:
    """The same, with a deadline that passes before the trainer stops waiting."""
    return replace(asked, deadline_s=min(asked.deadline_s or patience_s, patience_s))


def item_of(
    id: str, question: str, trace: str, label: Any, options: dict[str, str] | None = None, *, field: str
) -> TraceItem | None:
    """What is rewarded of a sample; None if the policy wrote nothing.

    Args:
        id: of the sample.
        question: the question, as the judge reads it.
        trace: what the policy wrote.
        label: the right answer; what is no text, or is empty or longer than any answer, is none.
        options: key to text.
        field: of the request, to be named where it does not fit.

    Raises:
        ServiceError: 422: there is no question, or one of them is too long.
    """
    if not trace.strip():
        return None
    known = isinstance(label, str) and label.strip() and len(label) <= _LONGEST_LABEL
    case = {"question": question, "trace": trace} | ({"options": options} if options else {})
    try:
        return TraceItem.model_validate({"case": {"id": id, **case}, "label": label.strip() if known else None})
    except ValidationError as error:
        what = {str(fault["loc"][1]): expected_by(fault) for fault in error.errors() if len(fault["loc"]) > 1}
        told = "; ".join(f"{name}: {why}" for name, why in what.items())
        raise unfit([{"field": field, "expected": told or "a question and a response"}]) from error


def nothing_written(id: str) -> Reward:
    """The reward of a response that is empty. The policy did that itself, and no judge is needed to see it: 0 in every part."""
    nothing = Components(accuracy=0.0, label_match=0.0, coherence=0.0, format=0.0)
    return Reward(id=id, status=Status.SCORED, reward=0.0, components=nothing, detail="the response is empty")


async def reward_samples(
    service: JudgingService, samples: Sequence[TraceItem | None], wanted: Sought, *, caller: Caller
) -> list[Reward]:
    """A reward for each sample, in order; None stands for an empty response. Raises as `reward_all`."""
    items = [item for item in samples if item is not None]
    found = iter(await reward_all(service, items, wanted, caller=caller) if items else ())
    return [nothing_written(str(place)) if item is None else next(found) for place, item in enumerate(samples)]


def numbers(rewards: Sequence[Reward], retry_after_s: int) -> list[float]:
    """The rewards as numbers, if all are.

    Raises:
        ServiceError: 503 with Retry-After if any was not judged: no number stands for it. What was judged is remembered, so
            that another try costs the rest. 422 if a label is missing or is none of the options, or a sample was not judged for
            what it is itself, such as its length, which no other try mends.
    """
    if unlabelled := [reward for reward in rewards if reward.status == "no_label"]:
        raise unfit(
            [{"field": f"labels.{reward.id}", "expected": f"a label: {reward.detail}"} for reward in unlabelled]
        )
    lost = [reward for reward in rewards if reward.reward is None]
    if lost:
        statuses = Counter(str(reward.status) for reward in lost)
        listed = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
        hopeless = [reward for reward in lost if reward.status not in OUTAGES]
        first = (hopeless or lost)[0]
        raise ServiceError(
            422 if hopeless else 503,
            "not-judged",
            "Not judged",
            f"{len(lost)} of {len(rewards)} samples were not judged: {listed}; the first is {first.id}: {first.detail}"
            + ("; another try would end the same" if hopeless else ""),
            None if hopeless else {"Retry-After": str(retry_after_s)},
            not_judged=dict(statuses),
        )
    return [reward.reward for reward in rewards if reward.reward is not None]
