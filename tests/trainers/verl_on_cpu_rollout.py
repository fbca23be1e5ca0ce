"""Rollout servers for `verl_on_cpu`: the tiny model behind verl's own interface of servers, and the exchange of its weights."""

from typing import Any

import ray
import torch
from rote_server import RoteServer
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica
from verl.workers.rollout.utils import ensure_async_iterator

NAME = "rote_server"


@ray.remote(num_cpus=0)
class Server(RoteServer):
    """One of verl's servers."""

    def load(self, weights: dict[str, torch.Tensor], global_steps: int) -> None:
        self.model.load_state_dict(weights)
        self.global_steps = global_steps

    async def sleep(self) -> None: ...

    async def wake_up(self) -> None: ...


class RoteReplica(RolloutReplica):
    async def launch_servers(self) -> None:
        path = self.model_config.path
        self._server_handle = Server.options(name=f"{NAME}_{self.replica_rank}", max_concurrency=64).remote(path)
        self._server_address = f"{NAME}_{self.replica_rank}"
        self.servers = [self._server_handle]


class RoteRollout(BaseRollout):
    """The trainer's side of it."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, global_steps: int = 0, **_: Any) -> None:
        told = {name: tensor.detach().cpu().clone() async for name, tensor in ensure_async_iterator(weights)}
        await ray.get_actor(f"{NAME}_0").load.remote(told, global_steps)
