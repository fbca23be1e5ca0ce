"""How trainers ask for rewards and what they do when there is none, as their code does it; waits are left out.

Read off OpenRLHF (`openrlhf/utils/remote_rm_utils.py`), slime (`slime/rollout/rm_hub`) and NeMo Gym (`nemo_gym/server_utils.py`,
`rollout_collection.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

Pause = Callable[[], Awaitable[None]]


async def no_pause() -> None:
    """In place of the seconds that a trainer waits between two tries."""


class RunStoppedError(Exception):
    """The trainer gives up, and its run ends: nothing is trained on."""


async def openrlhf(url: str, body: Mapping[str, Any], pause: Pause = no_pause) -> list[float]:
    """Five tries, a second apart, whatever goes wrong: no connection, an error, no JSON, no `rewards` in it."""
    async with httpx2.AsyncClient(timeout=180) as client:
        for _ in range(5):
            try:
                reply = (await client.post(url, json=dict(body))).raise_for_status().json()
                assert "rewards" in reply
            except Exception:  # noqa: BLE001 - so does the trainer
                await pause()
            else:
                rewards: list[float] = reply["rewards"]
                return rewards
    raise RunStoppedError("5 tries")


async def slime(url: str, sample: Mapping[str, Any], pause: Pause = no_pause) -> float:
    """Ten tries, up to 30 s apart; the last error is raised. The number is read with `--reward-key score`."""
    async with httpx2.AsyncClient(timeout=120) as client:
        for attempt in range(10):
            try:
                reply = (await client.post(url, json=dict(sample))).raise_for_status().json()
            except Exception as error:
                if attempt == 9:
                    raise RunStoppedError("10 tries") from error
                await pause()
            else:
                score: float = reply["score"]
                return score
    raise AssertionError


@dataclass
class NemoGym:
    """A collector of rollouts, which asks a resources server for each."""

    verify: Callable[[Mapping[str, Any]], Awaitable[tuple[int, dict[str, Any]]]]
    trained_on: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)  # the file beside, which a resumed run tries again

    async def collect(self, *rollouts: Mapping[str, Any]) -> None:
        """A status of 400 or more ends the run; what names a failure goes to the failures; a mask keeps out of the loss."""
        for status, result in await asyncio.gather(*map(self.verify, rollouts)):
            if status >= 400:
                raise RunStoppedError(str(status))
            if result.get("_ng_failure_class") is not None:
                self.failures.append(result)
            elif not (result.get("instance_config") or {}).get("mask_sample"):
                self.trained_on.append(result)
