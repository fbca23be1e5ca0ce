"""The search server against the plain pattern, under load.

    python -m benchmarks.retrieve INDEX [--queries FILE.jsonl.gz] [--clients 1,16,64,256] [--seconds 10] [--runs 3]

`plain` is what servers of this kind usually are: a FastAPI endpoint that is run in the thread pool, encodes its one request and
scans an `IndexFlatIP`. It has the encoder, the vectors and the texts of `ours`, which is `medverify retrieve serve` without its
answer cache. Each is a process of its own; they are loaded in turn by a third, so that a machine whose speed drifts drifts for
both. Queries are all different within a run: the titles of a corpus.
"""

import argparse
import asyncio
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import uvloop

from configs.settings import Settings
from serve.load import Connection, Load, run_load

PORTS = {"plain": 8191, "ours": 8192}
MANY = 2000  # requests at one moment, for the overload
BURSTS = 5


class Run(NamedTuple):
    """One measurement of one server."""

    load: Load
    cpu_ms: float  # processor time of the server for one answer: it hardly depends on what else the machine does


def main() -> None:
    """Measure and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--queries", type=Path, default=Path("../shared/data/corpora/medquad.jsonl.gz"))
    parser.add_argument("--clients", default="1,16,64,256")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--as-plain-server", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_plain_server:
        serve_plain(options.index, PORTS["plain"])
        return
    clients = [int(number) for number in options.clients.split(",")]
    with running(options.index) as pids:
        rows, busy = uvloop.run(measure(titles(options.queries), clients, options.seconds, options.runs, pids))
        show(rows, clients, busy)
        uvloop.run(overload(titles(options.queries), pids["ours"]))


def titles(path: Path) -> Iterator[str]:
    """The corpus's different titles, in an order of chance that is the same each time, over and over."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        unique = list(dict.fromkeys(json.loads(line)["title"] for line in lines))
    random.Random(0).shuffle(unique)
    return cycle(unique)


def serve_plain(folder: Path, port: int) -> None:
    """The plain pattern."""
    import faiss
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from medverify.assemble import load_encoder
    from retrieval.manifest import Manifest
    from retrieval.textstore import TextStore

    class Request(BaseModel):
        queries: list[str]
        topk: int = 3
        return_scores: bool = False

    manifest = Manifest.load(folder)
    encoder, texts = load_encoder(Settings(), "minilm-l6", lambda _: None), TextStore(folder)
    encoder.encode_queries(["fever"])  # loads the model
    index = stored_vectors(folder, manifest, faiss)
    app = FastAPI()

    @app.post("/retrieve")
    def retrieve(request: Request) -> dict[str, Any]:
        scores, rows = index.search(encoder.encode_queries(request.queries), request.topk)
        result = []
        for row_scores, row_ids in zip(scores, rows, strict=True):
            found = []
            for score, row in zip(row_scores, row_ids, strict=True):
                passage = texts.get(int(row))
                document = passage.model_dump() | {"contents": f"{passage.title}\n{passage.text}"}
                found.append({"document": document, "score": float(score)} if request.return_scores else document)
            result.append(found)
        return {"result": result}

    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def stored_vectors(folder: Path, manifest: Any, faiss: Any) -> Any:
    """The vectors of an index folder in an `IndexFlatIP`."""
    import numpy as np

    files = [folder / part.file for part in manifest.ranges]
    if files[0].suffix != ".npy":
        return faiss.read_index(str(files[0]))
    index = faiss.IndexFlatIP(manifest.encoder.dim)
    for file in files:
        index.add(np.ascontiguousarray(np.load(file), dtype=np.float32))
    return index


@contextmanager
def running(folder: Path) -> Iterator[dict[str, int]]:
    """Both servers; gives their process ids."""
    ours = "from medverify.cli import main; main()"
    commands = {
        "plain": ["-m", "benchmarks.retrieve", str(folder), "--as-plain-server"],
        "ours": [
            *("-c", ours, "retrieve", "serve", "--index", str(folder), "--port", str(PORTS["ours"])),
            *("--set", "retrieve.cached_hits=0"),
        ],
    }
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
    processes = {name: subprocess.Popen([sys.executable, *part], env=environment) for name, part in commands.items()}
    try:
        for name, process in processes.items():
            while not answers(PORTS[name]):
                assert process.poll() is None, f"the server `{name}` did not start"
                time.sleep(0.2)
        yield {name: process.pid for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait(timeout=60)


def answers(port: int) -> bool:
    """Whether a server answers a search there."""
    try:
        body = {"queries": ["fever"], "topk": 3, "return_scores": True}
        return httpx2.post(f"http://127.0.0.1:{port}/retrieve", json=body, timeout=60).status_code == 200
    except httpx2.TransportError:
        return False


async def measure(
    queries: Iterator[str], clients: list[int], seconds: float, runs: int, pids: dict[str, int]
) -> tuple[dict[tuple[str, int], list[Run]], float]:
    """Load the servers in turn; also gives the share of one core that the load itself took."""
    rows: dict[tuple[str, int], list[Run]] = {}
    used, started = time.process_time(), time.perf_counter()
    for run in range(runs):
        for number in clients:
            for name, port in PORTS.items():
                async with AsyncExitStack() as stack:
                    url = f"http://127.0.0.1:{port}"
                    asks = [(await stack.enter_async_context(Connection(url, 3))).ask for _ in range(number)]
                    await run_load(asks, queries, min(1.0, seconds))  # settles the batches
                    before = cpu_s(pids[name])
                    load = await run_load(asks, queries, seconds)
                    spent = cpu_s(pids[name]) - before
                rows.setdefault((name, number), []).append(Run(load, 1000 * spent / max(1, len(load.latencies))))
                print(f"run {run + 1}, {number} clients, {name}: {load.rate:.1f}/s", dict(load.outcomes), flush=True)
    return rows, (time.process_time() - used) / (time.perf_counter() - started)


def show(rows: dict[tuple[str, int], list[Run]], clients: list[int], busy: float) -> None:
    """Medians over the runs; ratios are medians of each run's ratio."""
    print(
        "\n| clients | server | queries/s | p50 ms | p99 ms | CPU ms a query | errors | queries/s, ours / plain |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for number in clients:
        pairs = zip(rows["plain", number], rows["ours", number], strict=True)
        ratios = [ours.load.rate / plain.load.rate for plain, ours in pairs if plain.load.rate]
        for name in PORTS:
            loads = [run.load for run in rows[name, number]]
            figures = [statistics.median(load.rate for load in loads)]
            figures += [statistics.median(load.quantile_ms(share) for load in loads) for share in (0.5, 0.99)]
            figures.append(statistics.median(run.cpu_ms for run in rows[name, number]))
            ratio = (
                f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f}-{max(ratios):.2f})" if name == "ours" else ""
            )
            numbers = " | ".join(f"{figure:.1f}" for figure in figures)
            print(f"| {number} | {name} | {numbers} | {sum(load.errors for load in loads)} | {ratio} |")
    print(f"\nThe load took {busy:.0%} of one core.")


async def overload(queries: Iterator[str], pid: int) -> None:
    """Many requests at one moment, several times: what they end in, and what it does to the server's memory."""
    print(
        f"\n| {MANY} at once | 200 | 503 | other | slowest ms | peak MiB | resident MiB after |\n|---|---|---|---|---|---|---|"
    )
    print(f"| before | | | | | | {memory_mib(pid, 'VmRSS'):.0f} |")
    for burst in range(BURSTS):
        forget_peak(pid)
        async with AsyncExitStack() as stack:
            url = f"http://127.0.0.1:{PORTS['ours']}"
            connections = [await stack.enter_async_context(Connection(url, 3)) for _ in range(MANY)]
            started = time.perf_counter()
            outcomes = Counter(await asyncio.gather(*(each.ask(next(queries)) for each in connections)))
            elapsed = (time.perf_counter() - started) * 1000
        good, busy = outcomes.pop("200", 0), outcomes.pop("503", 0)
        peak, left = memory_mib(pid, "VmHWM"), memory_mib(pid, "VmRSS")
        print(f"| {burst + 1} | {good} | {busy} | {dict(outcomes) or 0} | {elapsed:.0f} | {peak:.0f} | {left:.0f} |")


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget_peak(pid: int) -> None:
    """Have the kernel count a process's VmHWM from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def memory_mib(pid: int, what: str) -> float:
    """Memory of a process: VmRSS is what is resident now, VmHWM the most that was."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split(f"{what}:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
