"""What an exact index of a given size needs: memory, devices, and the queries a second that it can answer at most.

Exact search reads every vector once for each batch of queries and does one multiply-add for each value and query:

    bytes = rows * bytes a row             reading = bytes / bandwidth
    work  = 2 * rows * dim * batch         computing = work / operations a second
    seconds a batch = max(reading, computing) / efficiency

With few queries the batch costs the reading whatever its size, so queries a second grow with the batch; from `knee` queries on
it costs the computing, and they no longer do. On several devices each holds an equal part of the rows, and all work on every
batch at once. Encoding the queries comes on top, on another device or between two batches.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Machine(NamedTuple):
    """What holds and scans vectors, by its data sheet. Rates are peaks."""

    name: str
    memory: float  # bytes that it can hold
    bandwidth: float  # bytes a second
    operations: Mapping[str, float]  # operations a second on operands of each type; a multiply-add is two


class Profile(NamedTuple):
    """How a vector is stored, and in which type it is multiplied."""

    name: str
    value_bytes: float  # for each dimension
    operands: str  # what is computed with: fp32 or fp16 (bf16 runs at the same rate)
    operations: float = 2  # for each dimension and query: a multiply-add


class Plan(NamedTuple):
    """One profile on one kind of machine."""

    machine: str
    profile: str
    batch: int
    bytes: int  # all vectors
    devices: int
    seconds: float  # a batch
    rate: float  # queries a second with batches of this size, one after another
    knee: int  # the batch size from which computing, not reading, decides


# bf16 and fp16 scans find candidates; their scores are computed again from the stored vectors.
PROFILES = (
    Profile("fp32", 4, "fp32"),
    Profile("fp16", 2, "fp16"),
    Profile("bf16", 2, "fp16"),
    Profile("sq8", 1, "fp16"),  # one byte a value, widened when it is multiplied
    # 96 bytes for 768 values: a look-up and an addition for each byte. Look-ups do not reach the rate of additions.
    Profile("pq", 1 / 8, "fp32", 1 / 8),
)

# Dense rates without sparsity. The GPUs multiply fp32 outside their tensor cores: TF32 would round the operands.
_GPU_A100 = MappingProxyType({"fp32": 19.5e12, "fp16": 312e12})
_GPU_HOPPER = MappingProxyType({"fp32": 67e12, "fp16": 989e12})
# 64 cores at 3.1 GHz with two 256-bit fused multiply-adds a cycle; fp16 is widened first, so it is no faster.
_CPU = MappingProxyType({"fp32": 6.3e12, "fp16": 6.3e12})
MACHINES = (
    Machine("A100 80 GB", 80e9, 2.039e12, _GPU_A100),
    Machine("H100 80 GB", 80e9, 3.35e12, _GPU_HOPPER),
    Machine("H200 141 GB", 141e9, 4.8e12, _GPU_HOPPER),
    Machine("CPU, 12 x DDR5-4800", 768e9, 460.8e9, _CPU),
    Machine("CPU, NVMe PCIe 5 x4", 4e12, 14e9, _CPU),
)


def plan(
    rows: int,
    dim: int,
    profile: Profile,
    machine: Machine,
    batch: int,
    *,
    efficiency: float = 0.7,
    usable: float = 0.85,
) -> Plan:
    """Compute what `rows` vectors need on machines of one kind.

    Args:
        batch: queries that are searched together.
        efficiency: the share of the peak rates that is reached.
        usable: the share of a device's memory that vectors may fill; the rest is for scores, queries and the runtime.

    Raises:
        ValueError: an argument that is not positive, or a share above 1.
    """
    if min(rows, dim, batch) < 1 or not (0 < efficiency <= 1 and 0 < usable <= 1):
        raise ValueError("rows, dim and batch must be at least 1, efficiency and usable above 0 and at most 1")
    size = math.ceil(rows * dim * profile.value_bytes)
    devices = math.ceil(size / (machine.memory * usable))
    rate = machine.operations[profile.operands]
    reading = size / machine.bandwidth
    computing = profile.operations * rows * dim * batch / rate
    seconds = max(reading, computing) / efficiency / devices
    knee = math.ceil(profile.value_bytes * rate / (profile.operations * machine.bandwidth))
    return Plan(machine.name, profile.name, batch, size, devices, seconds, batch / seconds, knee)
