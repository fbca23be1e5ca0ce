"""A running service for trainers' own environments, which hold nothing of ours but the base install.

`make test-trainers` makes those environments and names the interpreter that the service runs with.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SERVER_PYTHON = "MEDVERIFY_TEST_SERVER_PYTHON"


class RunningService:
    """A service in a process of its own."""

    def __init__(self, repository: Path, python: str) -> None:
        """Starts it and waits for its address."""
        command = [python, str(repository / "tests" / "medverify" / "small_service.py")]
        environment = {**os.environ, "PYTHONPATH": str(repository)}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self._process.stderr
        line = next((line for line in self._process.stderr if "Uvicorn running on" in line), None)
        assert line, "the service did not start"
        self.url = line.split("running on ")[1].split()[0]

    def stop(self) -> None:
        """May be called more than once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)


@pytest.fixture
def start_service(repository: Path) -> Iterator[Callable[[], RunningService]]:
    """Starts services and stops them at the end of the test."""
    python = os.environ.get(SERVER_PYTHON)
    if not python:
        pytest.skip(f"{SERVER_PYTHON} names no interpreter: `make test-trainers` runs this")
    started = list[RunningService]()

    def start() -> RunningService:
        started.append(RunningService(repository, python))
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture(scope="session")
def setting(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A tiny policy, its data set and a running retrieval server, for the tests of the verl recipe."""
    python = os.environ.get(SERVER_PYTHON)
    if not python and find_spec("verl"):
        pytest.skip(f"{SERVER_PYTHON} names no interpreter: `make verl-check` runs this")
    from verl_setting import SearchServer, made

    server = SearchServer(repository, python or sys.executable)
    yield asyncio.run(made(tmp_path_factory.mktemp("verl"), server.url))
    server.stop()
