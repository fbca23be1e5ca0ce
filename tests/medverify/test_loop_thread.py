import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from medverify.loop_thread import LoopThread


async def three() -> int:
    return 3


def test_who_waits_when_it_is_closed_is_told_so() -> None:
    thread, ended, begun = LoopThread("test"), list[BaseException](), threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    def wait() -> None:
        try:
            thread.run(endless())
        except CancelledError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(10)
    thread.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert len(ended) == 1


def test_it_can_be_closed_at_any_time_and_used_again() -> None:
    thread = LoopThread("test")
    thread.close()
    assert thread.run(three()) == 3
    thread.close()
    assert thread.run(three()) == 3
    thread.close()


def test_an_error_of_the_work_is_the_callers() -> None:
    async def fails() -> None:
        raise KeyError("x")

    thread = LoopThread("test")
    with pytest.raises(KeyError):
        thread.run(fails())
    thread.close()
