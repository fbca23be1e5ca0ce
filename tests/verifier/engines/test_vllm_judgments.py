"""The same judgments by the real small judge: embedded, on vLLM in this process, and behind vLLM's own server.

`make test-vllm` runs this in an environment with vLLM; elsewhere there is nothing to test.
"""

import asyncio
import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest
from tiny_adapter import save_adapter

from configs.load import load_settings
from configs.resolve import resolve
from configs.settings import Settings
from medverify.assemble import load_judge
from verifier.examples import example_cases
from verifier.types import Judgment, Status

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed; `make test-vllm` installs it"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own, and those of what it imports
]

TOLERANCE = (
    1e-4  # of p(1): float32 everywhere, so what differs is the order of sums; docs/vllm.md says what bfloat16 does
)
MODEL, ADAPTER, CONTEXT = "smollm2-135m-instruct", "mine", 2048
START_S = 600.0
SHORT = ("judge.guided.think_tokens=24", "judge.guided.query_tokens=8", "judge.guided.max_searches=1", "judge.top_k=2")
EMBEDDED = (
    "judge.transformers.dtype=float32",
    "judge.transformers.device=cpu",
    f"judge.transformers.max_context={CONTEXT}",
)
IN_PROCESS = (
    "judge.engine=vllm", "judge.vllm.dtype=float32", "judge.vllm.cache_gib=0.5", "judge.vllm.enforce_eager=true",
    "judge.vllm.max_sequences=4", f"judge.vllm.max_context={CONTEXT}",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _leftovers() -> Iterator[None]:
    """vLLM leaves contexts of ZeroMQ to the garbage collector, which says so: here, where it is expected."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def cache(repository: Path) -> Path:
    return repository / ".cache" / "medverify"


@pytest.fixture(scope="module")
def adapter(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random adapter to the small judge."""
    return save_adapter(resolve(MODEL, cache).path, tmp_path_factory.mktemp("adapters") / ADAPTER, size=0.1)


@pytest.fixture(scope="module")
def plain(cache: Path) -> list[Judgment]:
    """What the embedded engine makes of the cases."""
    return judged(cache, *EMBEDDED)


@pytest.fixture(scope="module")
def adapted(cache: Path, adapter: Path) -> list[Judgment]:
    """The same with the adapter."""
    return judged(cache, *EMBEDDED, f"judge.adapter={adapter}")


@pytest.fixture(scope="module")
def server(cache: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM's server with the small judge and the adapter to it; its address."""
    with serving(resolve(MODEL, cache).path, adapter, tmp_path_factory.mktemp("server") / "log") as url:
        yield url


def judged(cache: Path, *overrides: str) -> list[Judgment]:
    """The demo's cases, judged one after the other, as an unhurried service would."""
    environ = {"MEDVERIFY_PATHS__CACHE": str(cache)}
    settings: Settings = load_settings(None, environ, [*SHORT, *overrides]).settings
    judge = load_judge(settings)

    async def run() -> list[Judgment]:
        await judge.warm_up()
        judgments = [await judge.verify(case) for case in example_cases()]
        await judge.aclose()
        return judgments

    return asyncio.run(run())


def assert_same(found: list[Judgment], expected: list[Judgment]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.status, ours.verdict) == (theirs.status, theirs.verdict), ours.detail
        assert ours.status is Status.SCORED
        assert ours.p_correct == pytest.approx(theirs.p_correct, abs=TOLERANCE)
        assert ours.label_mass == pytest.approx(theirs.label_mass, abs=TOLERANCE)
        assert ours.reasoning == theirs.reasoning
        assert [search.query for search in ours.searches] == [search.query for search in theirs.searches]
        assert ours.judge_id != theirs.judge_id


def test_in_process(cache: Path, plain: list[Judgment]) -> None:
    judgments = judged(cache, *IN_PROCESS)
    assert_same(judgments, plain)
    assert all(judgment.usage.cached_tokens > 0 for judgment in judgments)  # turns share their prefix


def test_in_process_with_an_adapter(cache: Path, adapter: Path, plain: list[Judgment], adapted: list[Judgment]) -> None:
    assert_same(judged(cache, *IN_PROCESS, f"judge.adapter={adapter}"), adapted)
    for without, with_it in zip(plain, adapted, strict=True):
        assert abs((without.p_correct or 0) - (with_it.p_correct or 0)) > 10 * TOLERANCE  # it does something


def test_behind_a_server(cache: Path, server: str, plain: list[Judgment]) -> None:
    """The model's name is asked for; the adapter beside it is no second model."""
    judgments = judged(cache, *served_at(server))
    assert_same(judgments, plain)
    assert all(judgment.usage.cached_tokens > 0 for judgment in judgments)


def test_behind_a_server_with_an_adapter(cache: Path, server: str, adapted: list[Judgment]) -> None:
    assert_same(judged(cache, *served_at(server), f"judge.adapter={ADAPTER}"), adapted)


def test_sampled_judgments_repeat_and_refusals_are_named(cache: Path, server: str) -> None:
    hot = ("judge.sampling.temperature=0.8", "judge.sampling.top_p=0.95")
    first, again = [judged(cache, *served_at(server), *hot) for _ in range(2)]
    assert [judgment.reasoning for judgment in first] == [judgment.reasoning for judgment in again]
    assert all(judgment.status is Status.SCORED for judgment in first)
    unknown = judged(cache, *served_at(server), "judge.adapter=of-somebody-else")
    assert {(judgment.status, judgment.verdict, judgment.p_correct) for judgment in unknown} == {
        (Status.ENGINE_FAILED, None, None)
    }
    assert all("HTTP 404" in judgment.detail for judgment in unknown)


# ---- vLLM's server ---------------------------------------------------------------------------------------------------


def served_at(url: str) -> tuple[str, ...]:
    return ("judge.engine=openai", f"judge.openai.base_url={url}/v1", f"judge.openai.max_context={CONTEXT}")


@contextmanager
def serving(model: Path, adapter: Path, log: Path) -> Iterator[str]:
    """Start the server as its manual says, wait until it is healthy, and stop it in the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "judge",
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", str(CONTEXT),
        "--max-num-seqs", "4", "--kv-cache-memory-bytes", str(2**29), "--enforce-eager", "--enable-prompt-tokens-details",
        "--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"{ADAPTER}={adapter}",
    ]  # fmt: skip
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file, env=_variables()) as process:
        try:
            _wait(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _variables() -> Mapping[str, str]:
    # What an engine in this process left behind for its own workers is not for those of another.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_") and name != "LD_PRELOAD"}
    return {**kept, "VLLM_NO_USAGE_STATS": "1"}


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        try:
            if httpx2.get(f"{url}/health", timeout=2).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.5)
