"""What the three sides compute, and how a side is asked for one step after the other."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LEARNING_RATE = 1e-6


@dataclass(frozen=True)
class Job:
    """The same for all sides."""

    model: str  # folder
    batches: list[
        list[dict[str, Any]]
    ]  # for each step its examples: `case`, `label`, and the ids of the prompt as `ids`
    rollouts: int  # of each example
    tokens: int  # written in each rollout
    micro: int  # rollouts of a forward and backward pass
    rank: int  # of the LoRA adapter; 0: whole weights
    overrides: list[str]  # settings of our side

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(len(example["ids"]) for batch in self.batches for example in batch)

    def rewards(self) -> list[float]:
        """Of the rollouts of one step, whatever they say: half of each group is right, so that every group teaches."""
        return [float(at % 2) for _ in self.batches[0] for at in range(self.rollouts)]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> "Job":
        return cls(**json.loads(Path(path).read_text()))


@dataclass(frozen=True)
class Seconds:
    """A step in parts."""

    sample: float
    learn: float
    cpu: float  # of all threads together, in the whole step
    written: int  # tokens that were drawn

    @property
    def whole(self) -> float:
        return self.sample + self.learn


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def wall(self) -> float:
        return time.perf_counter() - self._wall

    def stop(self, sample: float, written: int) -> Seconds:
        """The step is over, of which sampling took `sample`."""
        return Seconds(sample, self.wall() - sample, time.process_time() - self._cpu, written)


def asked() -> Iterator[Callable[[Seconds], None]]:
    """Say `ready`; then one item for each step that the parent asks for by a line on stdin; calling it answers on stdout.

    Whatever else the process prints goes to stderr.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=answers, flush=True)

    def answer(seconds: Seconds) -> None:
        answers.write(json.dumps(asdict(seconds)) + "\n")
        answers.flush()

    for _ in sys.stdin:
        yield answer
