"""TRL: reward functions for `GRPOTrainer` and its like. A completion that was not judged has the reward None.

TRL leaves None out of its group's baseline and gives the completion no advantage (1.16.0).

    from medverify.trainers.trl import reward_func
    GRPOTrainer(reward_funcs=reward_func, …)    # MEDVERIFY_URL=http://localhost:8080
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from medverify.client import AsyncClient
from medverify.loop_thread import LoopThread
from medverify.replies import Reward, TraceItem
from medverify.trainers.rewarding import Wanted, rewards_of
from medverify.trainers.samples import column, item_of, label_of, options_of, policy_text
from verifier.chat_text import question_of


class AsyncRewardFunction:
    """An asynchronous reward function, which TRL runs beside its others. Use it from one event loop at a time."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        question_column: str = "question",
        options_column: str = "options",
        label_column: str = "answer",
        component: str | None = None,
        weights: Mapping[str, float] | None = None,
        accuracy: Literal["verifier", "label"] | None = None,
        seed: int | None = None,
        deadline_s: float = 600.0,
        concurrency: int = 16,
        batch: int = 8,
        name: str = "medverify",
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: of the service; else MEDVERIFY_URL.
            api_key: of the service; else MEDVERIFY_API_KEY.
            question_column: what holds the question; where there is none, the prompt's last user message is the question.
            options_column: what holds lettered options; may be missing.
            label_column: what holds the right answer; may be missing, and is then not compared.
            component: return this one component in place of the whole reward.
            weights: of `accuracy`, `coherence` and `format` in the reward; the service's own if None.
            accuracy: whether accuracy is the verifier's probability or the comparison with the label.
            seed: of the judge's sampling.
            deadline_s: seconds for all completions of a step; what is not judged by then has no reward.
            concurrency: requests in flight at once.
            batch: completions in a request.
            name: what TRL calls it in its logs.

        Raises:
            ValueError: no URL is given.
        """
        self.__name__ = name
        self._client = AsyncClient(url, api_key=api_key, deadline_s=deadline_s, concurrency=concurrency, batch=batch)
        self._question, self._options, self._label = question_column, options_column, label_column
        self._component = component
        self._wanted = Wanted(weights, accuracy, seed)

    async def __call__(
        self, prompts: Sequence[Any] | None = None, completions: Sequence[Any] = (), **columns: Any
    ) -> list[float | None]:
        """One reward for each completion; None where it was not judged.

        Raises:
            ColumnError: the columns are not what they should be. The judge's own trouble raises nothing.
        """
        rewards = await rewards_of(self._client, self._items(prompts, completions, columns), self._wanted)
        _tell(columns, self.__name__, rewards)
        return [self._number(reward) for reward in rewards]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _items(
        self, prompts: Sequence[Any] | None, completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> list[TraceItem | str]:
        size = len(completions)
        questions, options, labels = (
            column(columns, name, size) for name in (self._question, self._options, self._label)
        )
        asked = prompts if prompts is not None else [""] * size
        return [
            item_of(
                place,
                str(questions[place] or question_of(asked[place])),
                policy_text(completions[place]),
                options_of(options[place]),
                label_of(labels[place]),
            )
            for place in range(size)
        ]

    def _number(self, reward: Reward) -> float | None:
        if self._component is None or not reward.judged:
            return reward.reward
        return reward.components.get(self._component)


class RewardFunction:
    """A reward function that blocks until the rewards are there. Takes what `AsyncRewardFunction` takes."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        """As `AsyncRewardFunction`."""
        self._asking = AsyncRewardFunction(url, **options)
        self._thread = LoopThread("medverify-trl")
        self.__name__ = self._asking.__name__

    def __call__(
        self, prompts: Sequence[Any] | None = None, completions: Sequence[Any] = (), **columns: Any
    ) -> list[float | None]:
        """As `AsyncRewardFunction`, without an event loop."""
        return self._thread.run(self._asking(prompts, completions, **columns))

    def close(self) -> None:
        """Close the connections."""
        self._thread.run(self._asking.aclose())
        self._thread.close()


def reward_func(
    prompts: Sequence[Any] | None = None, completions: Sequence[Any] = (), **columns: Any
) -> list[float | None]:
    """The reward function with the settings of `RewardFunction`, the service being that of MEDVERIFY_URL."""
    return _usual()(prompts, completions, **columns)


async def async_reward_func(
    prompts: Sequence[Any] | None = None, completions: Sequence[Any] = (), **columns: Any
) -> list[float | None]:
    """The same for trainers that await reward functions."""
    return await _usual_async()(prompts, completions, **columns)


@cache
def _usual() -> RewardFunction:
    return RewardFunction(name="reward_func")


@cache
def _usual_async() -> AsyncRewardFunction:
    return AsyncRewardFunction(name="async_reward_func")


def _tell(columns: Mapping[str, Any], name: str, rewards: Sequence[Reward]) -> None:
    """Log to TRL what cannot be seen from the rewards: how many are missing, and why."""
    log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
    if callable(log_metric) and rewards:
        log_metric(f"{name}/not_judged", sum(not reward.judged for reward in rewards) / len(rewards))
    if callable(log_extra):
        log_extra(f"{name}_status", [reward.status for reward in rewards])
