"""The folder of a training run: its exact settings, its log, its checkpoints. Killed at any moment, it goes on.

RUN/config.json          the settings, whole
RUN/metrics.jsonl        a line for each step
RUN/episodes.jsonl       a few whole episodes of each step, to read
RUN/selection-N.jsonl    what the gates saw before iteration N
RUN/checkpoints/NNNNNN/  weights, optimiser, progress
RUN/judge/               what came out; start a judge with it
"""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from configs.appended import AppendedFile, ResumeError
from configs.durable import sync, write_whole
from curriculum.metrics import Numbers
from curriculum.policy.policy import Policy, load_weights, save_weights
from curriculum.rollouts import Rollout
from curriculum.settings import TrainSettings

_FREE = ("paths", "serve", "retrieve", "run")  # sections that may change in the middle of a run


class Progress(BaseModel):
    """How far a run has come."""

    model_config = ConfigDict(extra="forbid")

    total: int = 0  # steps of the optimiser, all stages together
    stage: int = 0  # 0: warm-up; N: iteration N
    step: int = 0  # steps done in the stage
    pool: Mapping[str, Any] = {}  # the pool's state before the stage
    sizes: Mapping[str, int] = {}  # bytes of the logs that belong to it


class Run:
    """An open run folder; one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.progress = Progress()
        self._metrics = AppendedFile(folder / "metrics.jsonl")
        self._episodes = AppendedFile(folder / "episodes.jsonl")

    @classmethod
    @contextmanager
    def open(cls, folder: Path, settings: TrainSettings) -> Iterator["Run"]:
        """Begin a run, or go on with one.

        Raises:
            ResumeError: another process has it, or it was begun with other settings.
            OSError: it cannot be written.
        """
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ResumeError(f"{folder}: another process is training here") from error
            run = cls(folder)
            run._keep_settings(settings)
            newest = next(iter(run._checkpoints(newest_first=True)), None)
            if newest is not None:
                run.progress = Progress.model_validate_json((newest / "progress.json").read_bytes())
            with run._metrics, run._episodes:
                run._cut_logs()
                yield run

    def advance(self) -> None:
        """A step was taken."""
        progress = self.progress
        self.progress = progress.model_copy(update={"total": progress.total + 1, "step": progress.step + 1})

    def next_stage(self, pool: Mapping[str, Any]) -> None:
        """A stage is over."""
        self.progress = self.progress.model_copy(update={"stage": self.progress.stage + 1, "step": 0, "pool": pool})

    def restore(self, policy: Policy, optimiser: torch.optim.Optimizer | None) -> None:
        """Give the policy, and the optimiser if it goes on, what the newest checkpoint holds; nothing without one."""
        newest = next(iter(self._checkpoints(newest_first=True)), None)
        if newest is not None:
            policy.load_state(load_weights(newest / "weights.safetensors"))
            if optimiser is not None:
                optimiser.load_state_dict(torch.load(newest / "optimiser.pt", weights_only=True))

    def weights_before(self, stage: int) -> Mapping[str, torch.Tensor] | None:
        """The trained weights with which a stage began; None if it is not known."""
        ends = (one for one in self._checkpoints(newest_first=False) if (one / "last").exists())
        place = next((one for one in ends if one.name.endswith(f"-{stage}")), None)
        return None if place is None else load_weights(place / "weights.safetensors")

    def save(self, policy: Policy, optimiser: torch.optim.Optimizer, keep: int, *, stage_ends: bool = False) -> None:
        """Write a checkpoint; it appears whole. Older ones go, but for the last `keep` and those at the end of a stage."""
        for log in (self._metrics, self._episodes):
            log.sync()
        sizes = {log.path.name: log.path.stat().st_size for log in (self._metrics, self._episodes)}
        self.progress = self.progress.model_copy(update={"sizes": sizes})
        place = self.folder / "checkpoints" / f"{self.progress.total:06}-{self.progress.stage}"
        part = place.with_name(f".{place.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        save_weights(part / "weights.safetensors", policy.state())
        torch.save(optimiser.state_dict(), part / "optimiser.pt")
        if stage_ends:
            (part / "last").touch()
        write_whole(part / "progress.json", self.progress.model_dump_json())
        for file in part.iterdir():
            sync(file)
        shutil.rmtree(place, ignore_errors=True)
        part.rename(place)
        sync(place.parent)
        for old in [one for one in self._checkpoints(newest_first=True) if not (one / "last").exists()][keep:]:
            shutil.rmtree(old)

    def log(self, stage: str, numbers: Numbers, seconds: Mapping[str, float]) -> None:
        """A line of metrics. Times stand apart: they are all that differs between two runs of the same settings."""
        row = {"total": self.progress.total, "stage": stage, "step": self.progress.step, **numbers, "seconds": seconds}
        self._metrics.add(json.dumps(row).encode() + b"\n", sync=False)

    def tell_episodes(self, stage: str, rollouts: Sequence[Rollout]) -> None:
        """Keep whole episodes to read."""
        for one in rollouts:
            row = {
                "total": self.progress.total,
                "stage": stage,
                "label": one.example.label,
                "reward": one.reward.total if one.reward else None,
                "judgment": one.judgment.model_dump(mode="json", exclude={"latency_ms"}),
            }
            self._episodes.add(json.dumps(row, ensure_ascii=False).encode() + b"\n", sync=False)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics so far."""
        return [json.loads(line) for line in self._metrics.path.read_bytes().splitlines()]

    def _keep_settings(self, settings: TrainSettings) -> None:
        place = self.folder / "config.json"
        wanted = json.loads(settings.model_dump_json())
        if place.exists():
            kept = json.loads(place.read_text(encoding="utf-8"))
            if changed := [key for key in wanted if key not in _FREE and wanted[key] != kept.get(key)]:
                raise ResumeError(
                    f"{self.folder} was begun with other settings ({', '.join(changed)}); go on with {place}, or name another "
                    "folder with -o"
                )
        write_whole(place, json.dumps(wanted, indent=1) + "\n")

    def _checkpoints(self, *, newest_first: bool) -> list[Path]:
        found = (one for one in (self.folder / "checkpoints").iterdir() if not one.name.startswith("."))
        return sorted(found, reverse=newest_first)

    def _cut_logs(self) -> None:
        """What was written after the checkpoint will be written again."""
        for log in (self._metrics, self._episodes):
            log.cut(self.progress.sizes.get(log.path.name, 0))
