"""Train the tiny model. Run by test_trainer.py, which kills it. Arguments: model folder, run folder."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from tiny_lessons import short, train

from curriculum.trainer import Told


def tell(told: Told) -> None:
    print(told.stage, told.step, flush=True)


torch.set_num_threads(1)
train(Path(sys.argv[1]), Path(sys.argv[2]), short(), tell)
