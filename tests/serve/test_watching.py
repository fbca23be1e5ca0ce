import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from serve.watching import Admitted, Silence, Told, watched


async def test_what_is_told_comes_in_order_and_the_result_last() -> None:
    async def work(tell: Callable[[Told], None]) -> str:
        tell(Admitted(1))
        await asyncio.sleep(0)
        tell(Admitted(2))
        return "done"

    assert [one async for one in watched(work)] == [Admitted(1), Admitted(2), "done"]


async def test_a_result_may_be_nothing() -> None:
    async def work(_: Callable[[Told], None]) -> None:
        await asyncio.sleep(0)

    assert [one async for one in watched(work)] == [None]


async def test_an_error_comes_after_what_was_told_before_it() -> None:
    async def work(tell: Callable[[Told], None]) -> None:
        tell(Admitted(1))
        raise ValueError("broken")

    told = watched(work)
    assert await anext(told) == Admitted(1)
    with pytest.raises(ValueError, match="broken"):
        await anext(told)


async def test_silence_is_told_while_the_work_goes_on() -> None:
    gate = asyncio.Event()

    async def work(_: Callable[[Told], None]) -> str:
        await gate.wait()
        return "done"

    told = watched(work, pulse_s=0.01)
    assert [await anext(told), await anext(told)] == [Silence(), Silence()]
    gate.set()
    assert [one async for one in told][-1] == "done"


async def test_whoever_stops_listening_stops_the_work() -> None:
    ended: list[str] = []

    async def work(tell: Callable[[Told], None]) -> None:
        tell(Admitted(1))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    async with aclosing(watched(work)) as told:
        assert await anext(told) == Admitted(1)
        assert not ended
    assert ended == ["work"]


async def test_whoever_is_cancelled_while_it_listens_stops_the_work_too() -> None:
    ended = asyncio.Event()

    async def work(_: Callable[[Told], None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def listen() -> None:
        async for _ in watched(work):
            raise AssertionError("nothing is told")

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0.01)
    listening.cancel()
    async with asyncio.timeout(5):
        await ended.wait()
