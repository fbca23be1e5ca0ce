"""Processes end with the one that started them, even if it was killed; and only then."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import verifier
from verifier.engines.process_guard import ProcessGuard

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's handles of processes")

OWNER = """
import subprocess, sys, time
from verifier.engines.process_guard import ProcessGuard
worker = subprocess.Popen(["sleep", "60"], start_new_session=True)
guard = ProcessGuard([worker.pid])
print(worker.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_who_is_killed_takes_them_along(how: signal.Signals) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(verifier.__file__).parent.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    ) as owner:
        assert owner.stdout is not None
        worker = os.pidfd_open(int(owner.stdout.readline()))
        owner.send_signal(how)
        owner.communicate()
    deadline = time.monotonic() + 10
    while _runs(worker):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.close(worker)


def _runs(process: int) -> bool:
    try:
        signal.pidfd_send_signal(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_guard_that_is_dismissed_kills_nobody(sleeper: "subprocess.Popen[bytes]") -> None:
    guard = ProcessGuard([sleeper.pid])
    guard.dismiss()
    guard.dismiss()
    assert sleeper.poll() is None


def test_processes_that_are_gone_already_are_no_fault(sleeper: "subprocess.Popen[bytes]") -> None:
    sleeper.kill()
    sleeper.wait()
    ProcessGuard([sleeper.pid]).dismiss()
