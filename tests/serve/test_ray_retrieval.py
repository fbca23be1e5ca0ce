"""The Ray Serve application: what it is made of, and the same answers and honest faults on a real cluster of one machine.

The tests with a cluster need Ray, which the usual environment does not have: `make test-ray` makes one that does.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from configs.load import load_settings
from medverify.assemble import load_retriever
from medverify.cluster import RetrievalArguments
from retrieval.local import LocalRetriever
from retrieval.passage import Hit
from serve.retrieval_schemas import document

FILE = Path("configs/ray-retrieval.yaml")
SHARDS = 3
DEADLINE_S = 2.0

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: `make test-ray` runs it")


# ---- the file --------------------------------------------------------------------------------------------------------


def test_the_shipped_file_names_what_exists(repository: Path) -> None:
    content = yaml.safe_load((repository / FILE).read_text())
    (app,) = content["applications"]
    module, _, name = app["import_path"].partition(":")
    builder = getattr(import_module(module), name)
    assert builder.__annotations__["args"] is RetrievalArguments
    arguments = RetrievalArguments.model_validate(app["args"])
    assert arguments.shards == SHARDS
    settings = load_settings(arguments.config, {}, arguments.set).settings
    assert settings.retrieval.index == "starter"
    assert not settings.retrieve.allow_partial
    # The proxy must outlast the service, which answers 503 for itself; and a shard must give up before the service does.
    assert content["http_options"]["request_timeout_s"] > settings.retrieve.deadline_s > arguments.shard_deadline_s


# ---- a cluster -------------------------------------------------------------------------------------------------------


class Cluster(NamedTuple):
    url: str
    pid: int
    local: LocalRetriever
    rows: int

    def replica(self, deployment: str) -> int:
        """The process of a deployment's replica."""
        (pid,) = (
            pid for pid in descendants(self.pid) if title(pid).startswith(f"ray::ServeReplica:retrieval:{deployment}")
        )
        return pid


def descendants(pid: int) -> Iterator[int]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and parent(int(process.name)) == pid:
            yield int(process.name)
            yield from descendants(int(process.name))


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.fixture(scope="module")
def cluster(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The shipped file's application over the starter index, and the same index in this process."""
    cache = tmp_path_factory.mktemp("cache")
    settings = load_settings(None, {}, [f"paths.cache={cache}"]).settings
    local = load_retriever(settings)
    changes = {"set": [f"paths.cache={cache}"], "shards": SHARDS, "shard_deadline_s": DEADLINE_S}
    command = [
        sys.executable,
        str(Path(__file__).with_name("ray_cluster.py")),
        str(repository / FILE),
        json.dumps(changes),
    ]
    environment = os.environ | {"PYTHONPATH": str(repository)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=repository
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            url = process.stdout.readline().strip()
            assert url, "the cluster did not start"
            yield Cluster(url, process.pid, local, len(local.texts))
        finally:
            process.stdin.close()
            process.wait()
            asyncio.run(local.aclose())


QUERIES = [
    "warfarin mechanism of action",
    "first-line treatment of anaphylaxis",
    "metformin and kidney function",
    "What is the target of ACE inhibitors?",
    "fever",
    "ß-blocker, asthma — 中文 🩺",
]


def expected(hits: list[Hit]) -> list[dict[str, Any]]:
    return [{"document": json.loads(json.dumps(document(hit.passage))), "score": hit.score} for hit in hits]


def same(got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """The same documents in the same order; scores alike but for the last bits, since batches differ in both places."""
    return [hit["document"] for hit in got] == [hit["document"] for hit in wanted] and [
        hit["score"] for hit in got
    ] == pytest.approx([hit["score"] for hit in wanted], abs=1e-5)
