"""verl's synchronous trainer without a GPU: a platform, and rollout servers of a tiny model in the place of vLLM's.

An external module of verl (VERL_USE_EXTERNAL_MODULES), with VERL_PLATFORM=cpu. Everything else of a step is verl's own: its
trainer, transfer queue, replay buffer, agent loop workers, reward workers, FSDP engine, checkpoints and the exchange of weights.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _Device(ModuleType):
    """`torch.cpu`, with the questions that only memory of a device answers."""

    def __getattr__(self, name: str) -> Any:
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        if name.startswith(("memory", "max_memory", "mem_get")):
            return lambda *_, **__: (0, 0) if name == "mem_get_info" else 0
        if name == "get_device_name":
            return lambda *_: "CPU"
        if name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "manual_seed", "manual_seed_all"):
            return lambda *_, **__: None
        raise AttributeError(name)


_DEVICE = _Device("torch_cpu_as_a_device")


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "nobody"
    device_module = _DEVICE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None: ...

    def manual_seed_all(self, seed: int) -> None: ...

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # what verl's trainer asks Ray for; a test tells Ray that there is one

    def ray_noset_envvars(self) -> list[str]:
        return []

    def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
        return {"num_gpus": num_gpus}

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def _one_backend(start: Any) -> Any:
    """verl names a backend for the CPU and one for its device, which are the same here."""

    def started(backend: str | None = None, **options: Any) -> Any:
        return start("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **options)

    return started


if os.environ.get("VERL_PLATFORM") == "cpu":
    torch.distributed.init_process_group = _one_backend(torch.distributed.init_process_group)
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(FSDPEngineWithLMHead)
    base._ROLLOUT_REGISTRY["vllm", "async"] = "verl_on_cpu_rollout.RoteRollout"

    def _replica() -> Any:
        from verl_on_cpu_rollout import RoteReplica

        return RoteReplica

    RolloutReplicaRegistry.register("vllm", _replica)
