"""Ends processes when the one that started them is gone, however it went.

vLLM computes in processes that outlive a caller who is killed, with the GPU's memory in their hands, so that the service that
is started in its place finds none. A guard is a process of its own that waits at a pipe: it is closed by the kernel when its
owner dies. Linux, as vLLM itself.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable


class ProcessGuard:
    """Kills some processes as soon as this one is dead."""

    def __init__(self, pids: Iterable[int]) -> None:
        """Start watching; returns once the guard holds on to every process, so that no other can take its number."""
        command = [sys.executable, "-I", __file__, *map(str, pids)]
        # A session of its own: what a terminal sends to us all must not end the guard first.
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._guard.stdout is not None  # noqa: S101 - asked for above
        self._guard.stdout.read(1)

    def dismiss(self) -> None:
        """Stop watching; nothing is killed. Idempotent."""
        self._guard.communicate(b"x" if self._guard.poll() is None else None)


def _guard(pids: list[int]) -> None:
    processes = []
    for pid in pids:
        try:
            processes.append(os.pidfd_open(pid))
        except ProcessLookupError:  # it is gone already
            continue
    sys.stdout.write("x")
    sys.stdout.close()
    if sys.stdin.buffer.read(1):  # dismissed
        return
    for process in processes:
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    _guard([int(pid) for pid in sys.argv[1:]])
