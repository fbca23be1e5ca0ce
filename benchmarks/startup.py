"""How long it takes from `medverify serve` to the first verdict, with the models in the cache.

    python -m benchmarks.startup [--runs 3] [--set NAME=VALUE …]

Each run is a new process with a new state folder and the settings of this machine, asked by this process for one short case
over HTTP. Two services take turns: one with a key, the judgment cache and the audit log, as by default; one with none of them.

- loaded: from the start of the process until it says that the judge is loaded (imports, weights, index).
- ready: until `/ready` answers 200 (what all prompts share is computed, the socket is open).
- first verdict: until the answer to the first case.
- second verdict: of another case, by itself, for comparison: what of the first is not start-up.

Beside the seconds that passed, the CPU seconds of the service: on a machine that is shared, the better measure.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from benchmarks.service import cpu_s_of
from serve.keys import FILE, KeyStore, Scope

_PATIENCE_S = 120.0
_BARE = ("serve.cache.max_rows=0", "serve.audit.enabled=false")
_QUESTIONS = ("What does warfarin inhibit?", "Which enzyme does aspirin acetylate?")
_TRACES = ("Warfarin blocks the recycling of vitamin K. The answer is A.", "Aspirin acetylates COX. The answer is A.")


class Spent(NamedTuple):
    """Seconds that passed, and seconds that the service's process computed, over its cores together."""

    passed: float
    computed: float


_START = Spent(0.0, 0.0)


class Times(NamedTuple):
    """Since the process was started; the second verdict by itself."""

    loaded: Spent
    ready: Spent
    first_verdict: Spent
    second_verdict: Spent


def measure(state: Path, overrides: Sequence[str], *, bare: bool) -> Times:
    """Start a service and ask it twice.

    Args:
        state: an empty folder.
        overrides: settings, as NAME=VALUE.
        bare: without key, cache and audit log.

    Raises:
        RuntimeError: it did not start, or did not judge.
    """
    key = None
    if not bare:
        keys = KeyStore(state / FILE)
        key = keys.add("benchmark", [Scope.JUDGE])
        keys.close()
    settings = [f"paths.state={state}", *(_BARE if bare else ()), *overrides]
    command = [sys.executable, "-c", "from medverify.cli import main; main()", "serve", "--port", "0"]
    started = time.perf_counter()
    with running([*command, *(part for setting in settings for part in ("--set", setting))]) as process:

        def since(begin: Spent = _START) -> Spent:
            return Spent(time.perf_counter() - started - begin.passed, cpu_s_of(process.pid) - begin.computed)

        loaded = address = None
        assert process.stderr is not None
        for line in iter(process.stderr.readline, ""):
            if "is loaded" in line:
                loaded = since()
            if found := re.search(r"running on (http://\S+)", line):
                address = found[1]
                break
        if loaded is None or address is None:
            raise RuntimeError("the service did not start")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with httpx2.Client(base_url=address, timeout=_PATIENCE_S, headers=headers) as client:
            while client.get("/ready").status_code != 200:
                time.sleep(0.01)
            ready = since()
            ask(client, 0)
            first = since()
            ask(client, 1)
            second = since(first)
    return Times(loaded, ready, first, second)


@contextmanager
def running(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """A process, ended afterwards."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=_PATIENCE_S)


def ask(client: httpx2.Client, number: int) -> None:
    """One verdict; raises RuntimeError if there is none."""
    case = {"question": _QUESTIONS[number], "options": {"A": "So", "B": "Not so"}, "trace": _TRACES[number]}
    judgment = client.post("/verify", json=case).json()
    if judgment.get("status") != "scored":
        raise RuntimeError(f"not judged: {judgment}")


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="overrides")
    options = parser.parse_args()
    kinds = {"with key, cache and audit log": False, "with none of them": True}
    found: dict[str, list[Times]] = {kind: [] for kind in kinds}
    for _ in range(options.runs):
        for kind, bare in kinds.items():
            with tempfile.TemporaryDirectory() as folder:
                found[kind].append(measure(Path(folder), options.overrides, bare=bare))
    print("| seconds, median (least-most) | " + " | ".join(f"{kind} | CPU" for kind in kinds) + " |")
    print("|---" * (2 * len(kinds) + 1) + "|")
    for place, name in enumerate(Times._fields):
        columns = [[each[place][part] for each in times] for times in found.values() for part in (0, 1)]
        cells = [f"{statistics.median(column):.1f} ({min(column):.1f}-{max(column):.1f})" for column in columns]
        print(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
