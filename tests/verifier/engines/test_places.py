"""Places in an engine: never more than there are, in order of arrival, for callers in any event loop."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from verifier.engines.base import EngineError
from verifier.engines.places import Places


class Holder:
    """Somebody who takes places and keeps them until told."""

    def __init__(self, places: Places, count: int) -> None:
        self.has = asyncio.Event()
        self.done = asyncio.Event()
        self.task = asyncio.ensure_future(self._hold(places, count))

    async def _hold(self, places: Places, count: int) -> None:
        async with places.take(count):
            self.has.set()
            await self.done.wait()

    async def leave(self) -> None:
        self.done.set()
        await self.task


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_those_who_came_first_are_served_first() -> None:
    places = Places(3)
    first, group, single = Holder(places, 2), Holder(places, 2), Holder(places, 1)
    await settle()
    # One place is free, but it is not for the last in line, or the group would wait for ever.
    assert [holder.has.is_set() for holder in (first, group, single)] == [True, False, False]
    await first.leave()
    await settle()
    assert [holder.has.is_set() for holder in (group, single)] == [True, True]
    await group.leave()
    await single.leave()


async def test_who_leaves_the_line_holds_nobody_up() -> None:
    places = Places(2)
    first, group, single = Holder(places, 1), Holder(places, 2), Holder(places, 1)
    await settle()
    group.task.cancel()
    await settle()
    assert single.has.is_set()
    await first.leave()
    await single.leave()
    await Holder(places, 2).leave()  # all are back


async def test_places_that_come_as_their_taker_leaves_are_not_lost() -> None:
    places = Places(1)
    for _ in range(20):
        holder = Holder(places, 1)
        waiting = [Holder(places, 1) for _ in range(3)]
        await settle()
        holder.done.set()
        for late in waiting:
            await asyncio.sleep(0)
            late.task.cancel()
        await asyncio.gather(holder.task, *(late.task for late in waiting), return_exceptions=True)
        await asyncio.wait_for(Holder(places, 1).leave(), 5)


@pytest.mark.parametrize("count", [-1, 0, 4])
async def test_more_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(EngineError, match="max_sequences is 3"):
        async with Places(3).take(count):
            pass


def test_event_loops_may_come_and_go() -> None:
    places = Places(1)

    async def crowd() -> int:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(places.take(1))
            waiting = [Holder(places, 1) for _ in range(3)]
            await settle()
            await stack.aclose()
            for holder in waiting:
                await holder.leave()
            return len(waiting)

    assert [asyncio.run(crowd()) for _ in range(3)] == [3, 3, 3]
