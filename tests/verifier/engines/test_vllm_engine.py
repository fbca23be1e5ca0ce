"""vLLM in this process, on a model with random weights: what the embedded engine gives, whoever shares the batch.

`make test-vllm` runs this in an environment with vLLM; elsewhere there is nothing to test. Starting vLLM takes most of a minute.
"""

import asyncio
import gc
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_adapter import save_adapter, save_merged
from tiny_model import config, copy_with, save_model
from transformers import LlamaForCausalLM
from verifier_fakes import CASE, judge

import verifier
from configs.adapter import Adapter, read_adapter
from configs.settings import TransformersEngine as EmbeddedSettings
from configs.settings import VLLMEngine as EngineSettings
from verifier.engines.base import Completion, ContextFullError, Engine, EngineError, Finish, Generate
from verifier.engines.transformers import TransformersEngine
from verifier.engines.vllm import VLLMEngine
from verifier.types import Status

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed; `make test-vllm` installs it"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own, and those of what it imports
]

CONTEXT = 512
PLACES = 4
SETTINGS = EngineSettings(
    dtype="float32", max_sequences=PLACES, max_context=CONTEXT, cache_gib=0.25, enforce_eager=True
)
PROMPTS = ["The patient has", "K+ <3.5 é", "fever " * 40, "a b c " * 20, "?"]


@pytest.fixture(scope="module", autouse=True)
def _leftovers() -> Iterator[None]:
    """vLLM leaves contexts of ZeroMQ to the garbage collector, which says so: here, where it is expected."""
    yield
    gc.collect()


@contextmanager
def started(model: Path, adapter: Adapter | None = None) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(model, "d" * 64, SETTINGS, adapter)
    try:
        yield engine
    finally:
        asyncio.run(engine.aclose())


@contextmanager
def embedded(model: Path) -> Iterator[TransformersEngine]:
    settings = EmbeddedSettings(
        dtype="float32", device="cpu", max_sequences=PLACES, max_context=CONTEXT, step_tokens=512
    )
    engine = TransformersEngine(model, "d" * 64, settings)
    try:
        yield engine
    finally:
        asyncio.run(engine.aclose())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with heads of 32, the least that vLLM's attention on a CPU takes."""
    torch.manual_seed(20)
    return save_model(tmp_path_factory.mktemp("models") / "wider", LlamaForCausalLM(config(hidden_size=128)))


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[VLLMEngine]:
    with started(model) as running:
        yield running


@pytest.fixture(scope="module")
def reference(model: Path) -> Iterator[TransformersEngine]:
    with embedded(model) as running:
        yield running


async def ask(engine: Engine, ids: Any, max_tokens: int = 12, **how: Any) -> Completion:
    async with engine.open() as (sequence,):
        return await sequence.generate(Generate(ids, max_tokens, **how))


def assert_same(one: Completion, other: Completion) -> None:
    """The same but for rounding, and for where the prompt's numbers came from."""
    assert one.ids == other.ids
    assert one.finish is other.finish
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)
    for mine, yours in zip(one.watched, other.watched, strict=True):
        assert mine == pytest.approx(yours, abs=1e-3)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"watch": (16, 17, 0)},
        {"max_tokens": 1, "watch": (16, 17)},
        {"max_tokens": 40, "stop": ("never", "e", "i", "o", "a", "s", "p")},
        {"max_tokens": 40, "stop": ("\n", "x"), "watch": (16,)},
    ],
    ids=["greedy", "watched", "one token", "stop", "stop and watched"],
)
async def test_completions_are_those_of_the_embedded_engine(
    engine: VLLMEngine, reference: TransformersEngine, how: dict[str, Any]
) -> None:
    for text in PROMPTS:
        ids = reference.tokenizer.encode(text)
        assert_same(await ask(engine, ids, **how), await ask(reference, ids, **how))


async def test_a_crowd_gets_what_each_alone_gets(engine: VLLMEngine, reference: TransformersEngine) -> None:
    """More than there are places for, some watched and some not, in one batch."""
    hows: list[dict[str, Any]] = [{}, {"watch": (0, 16)}, {"watch": (5, 6, 7, 8, 9)}, {"stop": ("e", "a")}]
    prompts = [reference.tokenizer.encode(f"{text} {number}") for text in PROMPTS for number in range(4)]
    many = await asyncio.gather(*(ask(engine, ids, 20, **hows[at % 4]) for at, ids in enumerate(prompts)))
    for at, (ids, completion) in enumerate(zip(prompts, many, strict=True)):
        assert_same(completion, await ask(reference, ids, 20, **hows[at % 4]))


async def test_the_endings_are_told_apart(engine: VLLMEngine) -> None:
    assert (await ask(engine, [5] * 500, 50)).finish is Finish.CONTEXT
    assert len((await ask(engine, [5] * 500, 50)).ids) == 12
    assert (await ask(engine, [5] * 500, 12)).finish is Finish.LENGTH
    ended = [await ask(engine, [5, 6], 100, temperature=2.0, seed=seed) for seed in range(8)]
    ended = [done for done in ended if done.finish is Finish.END]
    assert ended
    assert all(done.ids[-1] in (0, 2) for done in ended)  # padding ends a text as well, as it does embedded
    with pytest.raises(ContextFullError):
        await ask(engine, [5] * CONTEXT, 1)
    with pytest.raises(EngineError, match="at least one id"):
        await ask(engine, [], 1)
    with pytest.raises(EngineError, match=r"temperature must be in \[0, 2\]"):
        await ask(engine, [5], temperature=3.0)


async def test_sampling_follows_its_seed(engine: VLLMEngine) -> None:
    how: dict[str, Any] = {"temperature": 1.0, "watch": (16,)}
    first, again, other = [await ask(engine, [5, 6, 7], 20, **how, seed=seed) for seed in (3, 3, 4)]
    assert first.ids == again.ids != other.ids
    assert all(math.isfinite(value) for value in first.logprobs)
    # vLLM tells log-probabilities at temperature 1 and over all words: otherwise only those that are watched are known.
    for changed in ({"temperature": 2.0}, {"top_p": 0.9}):
        cut = await ask(engine, [5, 6, 7], 20, **{**how, **changed}, seed=3)
        assert all(map(math.isnan, cut.logprobs))
        assert cut.watched[0] == pytest.approx(first.watched[0], abs=1e-4)


async def test_what_was_seen_is_not_computed_again(engine: VLLMEngine) -> None:
    """vLLM keeps whole blocks, of 128 tokens on a CPU."""
    shared = [40 + at % 50 for at in range(300)]
    await engine.preload(shared)
    done = await ask(engine, [*shared, 7, 8])
    assert (done.cached, done.prefilled) == (256, 46)


async def test_one_that_is_given_up_stops_costing(engine: VLLMEngine) -> None:
    long = asyncio.ensure_future(ask(engine, [5, 6], 500, temperature=0.3, seed=1))
    await asyncio.sleep(0.3)
    assert engine._llm.get_num_unfinished_requests() == 1
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    await _until_idle(engine)
    assert len((await ask(engine, [5, 6], 3)).ids) == 3


async def test_closing_a_sequence_gives_up_what_it_does(engine: VLLMEngine) -> None:
    async with engine.open(2) as (one, other):
        running = asyncio.ensure_future(one.generate(Generate([5, 6], 500, temperature=0.3, seed=1)))
        await asyncio.sleep(0.2)
        with pytest.raises(EngineError, match="busy"):
            await one.generate(Generate([5], 1))
        one.close()
        one.close()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(EngineError, match="closed"):
            await one.generate(Generate([5], 1))
        assert len((await other.generate(Generate([5], 1))).ids) == 1
    await _until_idle(engine)
    with pytest.raises(EngineError, match="max_sequences is 4"):
        async with engine.open(PLACES + 1):
            pass


async def _until_idle(engine: VLLMEngine) -> None:
    deadline = time.monotonic() + 5
    while engine._llm.get_num_unfinished_requests():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_event_loops_may_come_and_go(engine: VLLMEngine) -> None:
    first, second = [asyncio.run(ask(engine, [5, 6, 7])) for _ in range(2)]
    assert replace(first, cached=0, prefilled=0) == replace(second, cached=0, prefilled=0)


async def test_a_whole_judgment_is_the_same(engine: VLLMEngine, reference: TransformersEngine) -> None:
    how: dict[str, Any] = {"mode": "guided", "guided": {"think_tokens": 4, "query_tokens": 4}, "information_tokens": 64}
    ours, theirs = await judge(engine, **how).verify(CASE), await judge(reference, **how).verify(CASE)
    assert (ours.status, ours.verdict, ours.reasoning) == (theirs.status, theirs.verdict, theirs.reasoning)
    assert ours.judge_id != theirs.judge_id


def test_description(engine: VLLMEngine) -> None:
    assert engine.describe() == {
        "engine": "vllm", "weights": "d" * 64, "dtype": "float32", "device": "cpu", "max_context": CONTEXT,
        "tensor_parallel_size": 1, "enforce_eager": 1,
    }  # fmt: skip


# ---- engines of their own --------------------------------------------------------------------------------------------


def test_an_adapter_is_applied(model: Path, reference: TransformersEngine, tmp_path: Path) -> None:
    adapter = read_adapter(save_adapter(model, tmp_path / "mine"))
    with started(model, adapter) as mine, embedded(save_merged(model, tmp_path / "merged")) as merged:
        assert mine.describe()["adapter"] == adapter.digest
        for text in PROMPTS:
            ids = reference.tokenizer.encode(text)
            ours = asyncio.run(ask(mine, ids, watch=(16, 17)))
            assert_same(ours, asyncio.run(ask(merged, ids, watch=(16, 17))))
            assert ours.ids != asyncio.run(ask(reference, ids)).ids


def test_numbers_that_are_none_fail_and_a_closed_engine_says_so(model: Path, tmp_path: Path) -> None:
    broken = copy_with(model, tmp_path / "broken", "model.norm.weight", slice(None))
    with pytest.raises(EngineError, match="not numbers"), started(broken):
        pass  # found out by the generation that warms it up


async def test_closing_tells_those_who_wait(model: Path) -> None:
    engine = await asyncio.to_thread(VLLMEngine, model, "d" * 64, SETTINGS)
    how: dict[str, Any] = {"mode": "guided", "guided": {"think_tokens": 400, "query_tokens": 4}}
    waiting = asyncio.ensure_future(judge(engine, **how).verify(CASE))
    running = asyncio.ensure_future(ask(engine, [5, 6], 500, temperature=0.3, seed=1))
    await asyncio.sleep(0.3)
    await engine.aclose()
    await engine.aclose()
    assert (await waiting).status in (Status.ENGINE_FAILED, Status.TRUNCATED)
    with pytest.raises(EngineError, match="closed"):
        await running
    with pytest.raises(EngineError, match="closed"):
        await ask(engine, [5])


OWNER = """
import multiprocessing, sys, time
from pathlib import Path
from configs.settings import VLLMEngine as EngineSettings
from verifier.engines.vllm import VLLMEngine
if __name__ == "__main__":
    engine = VLLMEngine(Path(sys.argv[1]), "d" * 64, EngineSettings.model_validate_json(sys.argv[2]))
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    time.sleep(300)
"""


def test_nothing_of_it_outlives_a_kill(model: Path, tmp_path: Path) -> None:
    """What vLLM started would keep the GPU's memory from the service that takes this one's place."""
    (tmp_path / "owner.py").write_text(OWNER)
    command = [sys.executable, str(tmp_path / "owner.py"), str(model), SETTINGS.model_dump_json()]
    environ = {**os.environ, "PYTHONPATH": str(Path(verifier.__file__).parent.parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ) as owner:
        assert owner.stdout is not None
        children = [Path("/proc") / pid for pid in owner.stdout.readline().decode().split()]
        theirs = [path for child in children for path in _children_of(child)]
        assert theirs  # vLLM's core has workers of its own
        owner.kill()
    deadline = time.monotonic() + 20
    while any(map(_alive, [*children, *theirs])):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _children_of(process: Path) -> list[Path]:
    return [Path("/proc") / pid for pid in (process / "task" / process.name / "children").read_text().split()]


def _alive(process: Path) -> bool:
    try:
        return "State:\tZ" not in (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises((EngineError, OSError, ValueError)):
        VLLMEngine(tmp_path, "d" * 64, SETTINGS)
