"""Where work that waits for the disk is done: one piece after another, beside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Disk:
    """One thread, so that no two pieces of work meet in a file."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="medverify-jobs")

    async def __call__(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` returns or raises. What was begun is done, also if nobody waits for it any more."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def close(self) -> None:
        """Wait for what was begun."""
        self._thread.shutdown()
