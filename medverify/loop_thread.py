"""An event loop in a thread of its own: code that has none, or whose own is busy with it, can wait for coroutines."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """A loop that starts when it is needed. Callable from any thread; a forked process gets a loop of its own."""

    def __init__(self, name: str) -> None:
        """Args:
        name: of the thread.
        """
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a coroutine. One that is interrupted, by Ctrl-C for instance, is cancelled."""
        waiting = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def close(self) -> None:
        """End what still runs, stop the loop and wait for its end. The next `run` starts another.

        Raises in each thread that waits in `run`: concurrent.futures.CancelledError.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = None
            if loop is None or thread is None or self._process != os.getpid():
                return
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():  # threads do not survive a fork
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(loop,), name=self._name, daemon=True)
                self._thread.start()
                self._loop, self._process = loop, os.getpid()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        for task in (unfinished := asyncio.all_tasks(loop)):
            task.cancel()  # somebody may be waiting for it
        loop.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True))
    finally:
        loop.close()
