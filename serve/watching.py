"""Work that is watched: what it tells comes out as it happens, and its result comes last."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from verifier.events import Event

PULSE_S = 10.0  # proxies give up on connections that are silent for a minute


@dataclass(frozen=True, slots=True)
class Admitted:
    """The case was let in."""

    in_flight: int  # cases that are not finished, with this one


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing to tell, but the work goes on."""


Told = Event | Admitted
R = TypeVar("R")


async def watched(
    work: Callable[[Callable[[Told], None]], Coroutine[Any, Any, R]], pulse_s: float = PULSE_S
) -> AsyncGenerator[Told | Silence | R, None]:
    """Run `work`, give what it tells, then its result. Whoever stops listening stops the work.

    Args:
        work: is given the function that it tells with.
        pulse_s: seconds without an event after which there is a `Silence`.

    Raises:
        Exception: whatever the work raised, when it did.
    """
    told = asyncio.Queue[Told | None]()
    task = asyncio.ensure_future(work(told.put_nowait))
    task.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(pulse_s):
                    event = await told.get()
            except TimeoutError:
                yield Silence()
                continue
            if event is None:
                break
            yield event
        yield task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
