"""verl: `compute_score` for its reward managers. A sample that was not judged has the score NaN.

    reward.custom_reward_function.path=pkg://medverify.trainers.verl  reward.custom_reward_function.name=compute_score

verl has no score that means "none". NaN is the one value that cannot be taken for a reward: `medverify.trainers.verl_advantage`
leaves such a sample out of its group; without that, the group's advantages are NaN and verl's FSDP engine skips the update.
With `not_judged=raise` the sample is raised as an error instead, which verl's trainer (0.9, `trainer.use_v1`) answers by going
on with the rest of the group.
"""

import os
from collections.abc import Mapping
from functools import cache
from math import nan
from typing import Any, Literal

from medverify.address import API_KEY, URL
from medverify.client import AsyncClient
from medverify.loop_thread import LoopThread
from medverify.replies import COMPONENTS, Reward
from medverify.trainers.rewarding import Wanted, rewards_of
from medverify.trainers.samples import ColumnError, item_of, label_of, options_of
from verifier.service import NotJudgedError

_CONCURRENCY = 64  # of a worker of verl, which asks for each sample by itself


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    url: str | None = None,
    api_key: str | None = None,
    weights: Mapping[str, float] | None = None,
    accuracy: Literal["verifier", "label"] | None = None,
    seed: int | None = None,
    deadline_s: float = 600.0,
    not_judged: Literal["nan", "raise"] = "nan",
    **_: Any,
) -> dict[str, float]:
    """The score of one sample: the same keys for every sample, all of them floats, NaN for what is not known.

    Args:
        data_source: not used.
        solution_str: what the policy wrote.
        ground_truth: the right answer, a letter or a text; may be empty.
        extra_info: of the data set; must hold `question`, may hold `options`.
        url: of the service; else MEDVERIFY_URL. This and what follows come from `reward.custom_reward_function.reward_kwargs`.
        api_key: of the service; else MEDVERIFY_API_KEY.
        weights: of `accuracy`, `coherence` and `format` in the score; the service's own if None.
        accuracy: whether accuracy is the verifier's probability or the comparison with the ground truth.
        seed: of the judge's sampling.
        deadline_s: seconds for this sample.
        not_judged: what a sample that was not judged becomes: the score NaN, or a `NotJudgedError`.

    Returns:
        `score`; `acc`, whether the answer is right if that can be told, else the accuracy; `judged`, 1 or 0; and the components.

    Raises:
        ColumnError: the data set has no question.
        NotJudgedError: as `not_judged` says.
    """
    if not_judged not in ("nan", "raise"):
        raise ValueError(f"not_judged is {not_judged!r}; expected nan or raise")
    columns = extra_info or {}
    question = columns.get("question")
    if not isinstance(question, str) or not question.strip():
        raise ColumnError("extra_info has no `question`; put the question there when the data set is made")
    item = item_of(0, question, solution_str, options_of(columns.get("options")), label_of(ground_truth))
    client = _client(url or os.environ.get(URL), api_key or os.environ.get(API_KEY))
    [reward] = await rewards_of(client, [item], Wanted(weights and dict(weights), accuracy, seed, deadline_s))
    if not reward.judged and not_judged == "raise":
        raise NotJudgedError(f"{reward.status}: {reward.detail}")
    return _floats(reward)


def compute_score_blocking(data_source: str, solution_str: str, ground_truth: Any, **options: Any) -> dict[str, float]:
    """The same for reward managers that do not await, such as those in `verl.workers.reward_manager`."""
    return _thread().run(compute_score(data_source, solution_str, ground_truth, **options))


def _floats(reward: Reward) -> dict[str, float]:
    """A reward in verl's shape. Its arrays are made from the keys of one sample, so that all have the same."""
    parts = {name: _float(reward.components.get(name)) for name in COMPONENTS}
    right = reward.components.get("label_match")
    return {
        "score": _float(reward.reward),
        "acc": nan if not reward.judged else parts["accuracy"] if right is None else float(right),
        "judged": float(reward.judged),
        **parts,
    }


def _float(value: float | None) -> float:
    return nan if value is None else float(value)


@cache
def _client(url: str | None, api_key: str | None) -> AsyncClient:
    """One client for all samples of a worker: it bounds how many are asked for at once."""
    return AsyncClient(url, api_key=api_key, concurrency=_CONCURRENCY)


@cache
def _thread() -> LoopThread:
    return LoopThread("medverify-verl")
