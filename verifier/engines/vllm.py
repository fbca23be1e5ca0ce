"""vLLM in this process as an engine: paged memory, continuous batching over all open episodes, one GPU or several.

vLLM computes in processes of its own and is spoken to from one event loop, which lives in a thread here, so that callers may
come from any loop. A prefix that any episode has seen is found in its cache, block by block: nothing is kept for a sequence,
and a turn costs its new tokens and the rest of a block. vLLM puts its batches together as requests arrive, so sequences that
were opened together do not advance in step, and the last bits of a number may differ from run to run.
"""

import asyncio
import math
import multiprocessing
import os
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine
from collections.abc import Sequence as Ids
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from configs.adapter import Adapter
from configs.precision import native_bfloat16
from configs.settings import VLLMEngine as EngineSettings
from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate, Sequence
from verifier.engines.places import Places
from verifier.engines.process_guard import ProcessGuard
from verifier.engines.tokenizer import HFTokenizer
from verifier.engines.vllm_sampling import as_drawn, turn_seed

# Read when vLLM is imported, and by the processes that it starts.
_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork would take over locks of threads that it does not have
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # results go to the standard output
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",  # a judge calls nobody at home
    "OMP_WAIT_POLICY": "PASSIVE",
}
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # of adapters, that vLLM has kernels for
_SHUTDOWN_S = 10.0  # seconds that vLLM's processes have to end by themselves

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _OpenSequence:
    engine: "VLLMEngine"
    running: Future[Completion] | None = None
    closed: bool = False

    async def generate(self, request: Generate) -> Completion:
        if self.closed or self.running is not None:
            raise EngineError("the sequence is closed or busy: one generation at a time")
        self.running = self.engine._submit(request)
        try:
            return await asyncio.wrap_future(self.running)
        finally:
            self.running = None

    def close(self) -> None:
        self.closed = True
        if self.running is not None:
            self.running.cancel()


class VLLMEngine:
    """Implements `base.Engine` over vLLM's AsyncLLM."""

    def __init__(
        self, path: Path, digest: str, settings: EngineSettings | None = None, adapter: Adapter | None = None
    ) -> None:
        """Load a model folder. Blocking; most of a minute.

        Args:
            path: the folder (safetensors, tokenizer, config).
            digest: SHA-256 of its weights, as the catalogue gives it; part of the judge's id.
            adapter: applied to the model in every generation.

        Raises:
            EngineError: vLLM cannot load the folder or the adapter, or has too little memory.
            ModuleNotFoundError: vLLM is not installed.
        """
        settings = settings or EngineSettings()
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from vllm.lora.request import LoRARequest

        self._tokenizer = HFTokenizer(path)
        self._digest = digest
        self._adapter = adapter
        self._settings = settings
        self.max_context = min(settings.max_context, _positions(path))
        self.max_sequences = settings.max_sequences
        self._places = Places(settings.max_sequences)
        self._lora = LoRARequest("judge", 1, str(adapter.folder.resolve())) if adapter else None
        self._closed = False
        self._generations: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="medverify-vllm", daemon=True)
        self._thread.start()
        try:
            self._llm = self._on_loop(_start(path, settings, self.max_context, adapter)).result()
            self._guard = ProcessGuard(process.pid for process in multiprocessing.active_children() if process.pid)
            self._warm_up()
        except BaseException:
            self._stop()
            raise

    @property
    def tokenizer(self) -> HFTokenizer:
        return self._tokenizer

    def describe(self) -> dict[str, str | int | float]:
        from vllm.platforms import current_platform

        return {
            "engine": "vllm",
            "weights": self._digest,
            "dtype": str(self._llm.model_config.dtype).removeprefix("torch."),
            "device": current_platform.device_type,
            "max_context": self.max_context,
            # Both change the order of sums.
            "tensor_parallel_size": self._settings.tensor_parallel_size,
            "enforce_eager": int(self._settings.enforce_eager),
            **({"adapter": self._adapter.digest} if self._adapter else {}),
        }

    @asynccontextmanager
    async def open(self, count: int = 1) -> AsyncIterator[list[Sequence]]:
        self._check_open()
        async with self._places.take(count):
            opened = [_OpenSequence(self) for _ in range(count)]
            try:
                yield list(opened)
            finally:
                for sequence in opened:
                    sequence.close()

    async def preload(self, ids: Ids[int]) -> None:
        """Compute a text once, so that vLLM's own cache has it. It stays there for as long as there is room."""
        async with self.open() as (sequence,):
            await sequence.generate(Generate(ids, max_tokens=1))

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._stop)

    def _submit(self, request: Generate) -> Future[Completion]:
        self._check_open()
        if request.max_tokens < 1 or not request.ids:
            raise EngineError("a generation needs at least one id to continue and one token to write")
        if len(request.ids) >= self.max_context:
            raise ContextFullError(f"{len(request.ids)} tokens leave no room in a context of {self.max_context}")
        return self._on_loop(self._complete(request))

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed")

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _complete(self, request: Generate) -> Completion:
        """One generation, on vLLM's loop. Cancelled, vLLM stops computing for it."""
        from vllm.inputs import tokens_input

        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._generations.add(task)
        try:
            prompt, name = tokens_input(list(request.ids)), uuid.uuid4().hex
            async for output in self._llm.generate(prompt, self._sampling(request), name, lora_request=self._lora):
                last = output
        except asyncio.CancelledError:
            if self._closed:  # not by the caller, who must be told
                raise EngineError("the engine was closed") from None
            raise
        except Exception as error:
            raise EngineError(f"vLLM failed: {type(error).__name__}: {error}") from error
        finally:
            self._generations.discard(task)
        return self._read(last, request)

    def _sampling(self, request: Generate) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            max_tokens=min(request.max_tokens, self.max_context - len(request.ids)),
            temperature=request.temperature,
            top_p=request.top_p,
            seed=turn_seed(request.seed, request.ids),
            stop=list(request.stop),
            stop_token_ids=sorted(self._tokenizer.end_ids),
            include_stop_str_in_output=True,
            logprobs=None if request.watch else 0,
            logprob_token_ids=list(request.watch) or None,
            detokenize=bool(request.stop),  # vLLM needs the text for nothing else, and we not at all
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _read(self, output: Any, request: Generate) -> Completion:
        (written,) = output.outputs
        ids = tuple(written.token_ids)
        if not ids or written.logprobs is None or len(written.logprobs) != len(ids):
            raise EngineError("vLLM gave no tokens, or not one log-probability for each")
        chosen = tuple(position[token].logprob for token, position in zip(ids, written.logprobs, strict=True))
        if any(map(math.isnan, chosen)):
            raise EngineError("the model gave logits that are not numbers")
        watched = tuple(
            tuple(position[token].logprob if token in position else -math.inf for token in request.watch)
            for position in written.logprobs
        )
        cached = output.num_cached_tokens or 0
        return Completion(
            ids,
            as_drawn(chosen, request.temperature, request.top_p),
            watched,
            self._finish(written, request),
            prefilled=len(request.ids) - cached,
            cached=cached,
        )

    def _finish(self, written: Any, request: Generate) -> Finish:
        match written.finish_reason:
            case "stop":
                return Finish.STOP if isinstance(written.stop_reason, str) else Finish.END
            case "length":
                return Finish.LENGTH if len(written.token_ids) == request.max_tokens else Finish.CONTEXT
            case other:
                raise EngineError(f"vLLM ended with finish_reason {other!r}")

    def _warm_up(self) -> None:
        """Generate once: what vLLM compiles at first use must not cost a judgment its deadline, and an adapter is loaded now.

        A judge that cannot be started is better than one whose judgments all fail.
        """
        ids = self._tokenizer.encode("0 1")
        self._on_loop(self._complete(Generate(ids, max_tokens=2, stop=("</",), watch=tuple(ids[:1])))).result()

    def _stop(self) -> None:
        self._on_loop(self._shut_down()).result()
        if (guard := getattr(self, "_guard", None)) is not None:
            guard.dismiss()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _shut_down(self) -> None:
        """End what runs on the loop, from the inside out."""
        while self._generations:
            for generation in self._generations:
                generation.cancel()
            await asyncio.wait(self._generations)
        if (llm := getattr(self, "_llm", None)) is not None:
            llm.shutdown(timeout=_SHUTDOWN_S)  # blocks; only vLLM's own tasks are left on the loop
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _start(path: Path, settings: EngineSettings, max_context: int, adapter: Adapter | None) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments: dict[str, Any] = {
        "model": str(path),
        "dtype": _dtype(settings.dtype),
        "max_model_len": max_context,
        "max_num_seqs": settings.max_sequences,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "enforce_eager": settings.enforce_eager,
        "enable_prefix_caching": True,
        "generation_config": "vllm",  # not the folder's: what we do not ask for, such as penalties, must not be applied
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if settings.cache_gib is not None:
        arguments["kv_cache_memory_bytes"] = int(settings.cache_gib * 2**30)
    if adapter is not None:
        rank = next((rank for rank in _RANKS if rank >= adapter.rank), None)
        if rank is None:
            raise EngineError(f"the adapter has rank {adapter.rank}; vLLM takes up to {_RANKS[-1]}")
        arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except Exception as error:  # vLLM raises what its parts raise
        raise EngineError(f"vLLM cannot load {path}: {type(error).__name__}: {error}") from error


def _dtype(setting: str) -> str:
    """`auto` is vLLM's, but for a CPU that does not multiply its 16-bit numbers: there they are a hundred times slower."""
    from vllm.platforms import current_platform

    emulated = current_platform.is_cpu() and not native_bfloat16("cpu")
    return "float32" if setting == "auto" and emulated else setting


def _positions(path: Path) -> int:
    """Tokens that the model was made for."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path)
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"cannot read the configuration of {path}: {error}") from error
    return getattr(config.get_text_config(), "max_position_embeddings", None) or 2**31
