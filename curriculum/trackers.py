"""Numbers of a run for TensorBoard and Weights & Biases, where they are asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from curriculum.settings import TrainSettings
from curriculum.trainer import Tell, Told


def trackers(settings: TrainSettings, folder: Path) -> list[Tell]:
    """What else is told of each step.

    Raises:
        ModuleNotFoundError: `tensorboard` or `wandb` is asked for and not installed.
    """
    found: list[Tell] = []
    if settings.run.tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(folder / "tensorboard"))
        found.append(_told(writer.add_scalar))
    if settings.run.wandb:
        import wandb  # type: ignore[import-not-found]

        tracked: Any = wandb.init(
            project=settings.run.wandb, dir=str(folder), id=folder.resolve().name, resume="allow",
            config=settings.model_dump(mode="json"),
        )  # fmt: skip
        found.append(_told(lambda name, value, total: tracked.log({name: value}, step=total)))
    return found


def _told(write: Callable[[str, float, int], None]) -> Tell:
    def tell(told: Told) -> None:
        for name, value in told.numbers.items():
            if value is not None:
                write(f"{told.stage}/{name}", value, told.total)

    return tell
