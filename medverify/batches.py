"""Many items in requests of a few: what one refuses or loses is not lost for the others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from verifier.service import RefusedError, RemoteJudgeError

Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchSize:
    """How many items go into one request; learns what a service takes."""

    def __init__(self, most: int) -> None:
        """Args:
        most: items, to begin with.

        Raises:
            ValueError: it is below 1.
        """
        if most < 1:
            raise ValueError(f"batch is {most}; expected at least 1")
        self.most = most

    def learn(self, refused: int) -> None:
        """So many were too large a request."""
        self.most = max(1, min(self.most, refused // 2))


async def in_batches(
    items: Sequence[Item],
    size: BatchSize,
    send: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
) -> list[Result | RemoteJudgeError]:
    """What `send` gives for each item, or the error that took it, in the order of `items`.

    A request that is refused is halved, down to the items that the service will not take.
    """

    async def of(batch: Sequence[Item]) -> list[Result | RemoteJudgeError]:
        try:
            return list(await send(batch))
        except RefusedError as error:
            if len(batch) == 1:
                return [error]
            if error.status == 413:
                size.learn(len(batch))
            half = len(batch) // 2
            parts = await asyncio.gather(of(batch[:half]), of(batch[half:]))
            return [*parts[0], *parts[1]]
        except RemoteJudgeError as error:
            return [error] * len(batch)

    batches = [items[start : start + size.most] for start in range(0, len(items), size.most)]
    return [result for part in await asyncio.gather(*map(of, batches)) for result in part]


def unless_all_failed(results: Sequence[Result | RemoteJudgeError]) -> Sequence[Result | RemoteJudgeError]:
    """The results; raises the first error if there is nothing else."""
    if results and all(isinstance(result, RemoteJudgeError) for result in results):
        first = results[0]
        assert isinstance(first, RemoteJudgeError)  # noqa: S101 - for the type checker
        raise first
    return results
