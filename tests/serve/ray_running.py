"""A Ray cluster in a process of its own, as tests start it and look into it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: `make test-ray` runs it")


@dataclass(frozen=True)
class RunningCluster:
    """Where it answers, and its processes."""

    url: str
    process: "subprocess.Popen[str]"

    def replicas(self, application: str, deployment: str) -> set[int]:
        """The processes of a deployment's replicas."""
        name = f"ray::ServeReplica:{application}:{deployment}"
        return {pid for pid in _descendants(self.process.pid) if _title(pid).startswith(name)}

    def take_away(self, application: str) -> None:
        """Begin to; `wait_until_gone` waits for the end."""
        assert self.process.stdin
        self.process.stdin.write(f"{application}\n")
        self.process.stdin.flush()

    def wait_until_gone(self) -> None:
        """Waits for what `take_away` began."""
        assert self.process.stdout
        assert "gone\n" in self.process.stdout  # or other lines, of Ray's, before it


@contextmanager
def running_cluster(
    file: Path, repository: Path, changes: Mapping[str, Mapping[str, object]]
) -> Iterator[RunningCluster]:
    """The applications of a Serve config file; `changes` are arguments, by application, that differ from the file's."""
    here = Path(__file__).parent
    command = [sys.executable, str(here / "ray_cluster.py"), str(file), json.dumps(changes)]
    environment = os.environ | {"PYTHONPATH": f"{repository}:{here}", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=repository
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            url = process.stdout.readline().strip()
            assert url, "the cluster did not start"
            yield RunningCluster(url, process)
        finally:
            process.stdin.close()
            process.wait()


def _descendants(pid: int) -> Iterator[int]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _parent(int(process.name)) == pid:
            yield int(process.name)
            yield from _descendants(int(process.name))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
