"""Settings of a training run: what `medverify train` reads beside the judge's and the index's own."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from configs.settings import Section, Settings
from curriculum.pool.settings import PoolSettings


class Lora(Section):
    """A low-rank adapter in place of the whole weights."""

    rank: Annotated[int, Field(ge=0, description="Of each pair of matrices; 0: train the whole weights.")] = 16
    alpha: Annotated[int, Field(ge=1, description="The adapter counts alpha / rank times.")] = 32
    targets: Annotated[
        str, Field(description="Layers that get one: `all-linear`, or the endings of their names, divided by commas.")
    ] = "all-linear"


class PolicySettings(Section):
    """The weights that are trained."""

    lora: Lora = Lora()
    device: Annotated[str, Field(description="auto, cpu, cuda or cuda:N.")] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Field(description="Of the arithmetic; weights are kept in float32. auto: bfloat16 where the hardware has it."),
    ] = "auto"
    row_tokens: Annotated[
        int, Field(ge=1, description="Tokens of one forward and backward pass; the rest of a batch waits its turn.")
    ] = 4096
    recompute: Annotated[
        bool, Field(description="Compute activations twice instead of keeping them: slower, for less memory.")
    ] = False
    weight_decay: Annotated[float, Field(ge=0, description="Of AdamW.")] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0, description="Gradients longer than this are shortened to it.")] = 1.0


class WarmUp(Section):
    """Supervised steps on demonstrations, for bases that cannot write the tags. Reported as what it is."""

    demonstrations: Annotated[
        tuple[Path, ...],
        Field(description="Files of `medverify world` and `medverify swapped-facts`, mixed evenly; none: no warm-up."),
    ] = ()
    steps: Annotated[int, Field(ge=0, description="Optimiser steps.")] = 0
    batch: Annotated[int, Field(ge=1, description="Demonstrations of a step.")] = 16
    learning_rate: Annotated[
        float, Field(gt=0, description="After the first tenth of the steps, then falling to 0.")
    ] = 1e-4
    verdict_weight: Annotated[
        float, Field(gt=0, description="How often the digit of the verdict counts: it is one token among a hundred.")
    ] = 8.0


class FilterSettings(Section):
    """The gates that candidates pass before they are trained on."""

    enabled: Annotated[bool, Field(description="False: train on what the pool gives.")] = True
    least_tokens: Annotated[int, Field(ge=0, description="A group's mean of policy tokens at least.")] = 0
    most_tokens: Annotated[int | None, Field(ge=1, description="A group's mean of policy tokens at most.")] = None
    well_formed: Annotated[float, Field(ge=0, le=1, description="Share of a group that must keep the format.")] = 0.0


class Iteration(Section):
    """One round of the curriculum: sample, filter with the current policy, Dr.GRPO."""

    budget: Annotated[int, Field(ge=1, description="Examples to train on, half per label.")] = 20_000
    epochs: Annotated[int, Field(ge=1, description="How often each of them is sampled anew.")] = 5
    steps: Annotated[int | None, Field(ge=1, description="Steps after which the iteration ends all the same.")] = None
    batch: Annotated[int, Field(ge=1, description="Examples of a step.")] = 256
    group: Annotated[int, Field(ge=2, description="Rollouts of an example.")] = 5
    mini_batches: Annotated[
        int, Field(ge=1, description="Parts of a batch, an optimiser step each; with 1 the clip all but never acts.")
    ] = 1
    learning_rate: Annotated[float, Field(gt=0, description="After the warm-up, constant.")] = 1e-6
    warm_up_steps: Annotated[int, Field(ge=0, description="Steps in which the learning rate rises from 0.")] = 10
    clip_low: Annotated[float, Field(ge=0, lt=1, description="How far the ratio may fall below 1.")] = 0.2
    clip_high: Annotated[float, Field(ge=0, description="How far the ratio may rise above 1.")] = 0.3
    gates: FilterSettings = FilterSettings()


class HeldOut(Section):
    """What is measured on the way, on examples that are never trained on."""

    pack: Annotated[Path | None, Field(description="PREFIX of questions and traces; none: nothing is measured.")] = None
    examples: Annotated[int, Field(ge=1, description="Taken from it, half per label.")] = 64
    every: Annotated[int, Field(ge=1, description="Steps between two measurements; also before the first.")] = 10


class RunSettings(Section):
    """The run's own."""

    seed: Annotated[int, Field(ge=0, description="Of everything that is drawn.")] = 0
    checkpoint_every: Annotated[int, Field(ge=1, description="Steps between two checkpoints.")] = 10
    keep: Annotated[int, Field(ge=1, description="Checkpoints kept; the last of each stage is kept besides.")] = 2
    kl_every: Annotated[
        int, Field(ge=0, description="Steps between two measurements of the distance to the start; 0: never.")
    ] = 10
    tensorboard: Annotated[bool, Field(description="Write event files too; needs tensorboard.")] = False
    wandb: Annotated[str, Field(description="Project at Weights & Biases to log to; empty: none. Needs wandb.")] = ""


class TrainingConfig(Settings):
    """What a training config may hold: the sections of settings and these."""

    pool: PoolSettings
    policy: PolicySettings = PolicySettings()
    warm_up: WarmUp = WarmUp()
    iterations: Annotated[
        tuple[Iteration, ...], Field(description="Rounds of the curriculum, one after the other.")
    ] = (Iteration(), Iteration(group=8))
    held_out: HeldOut = HeldOut()
    run: RunSettings = RunSettings()

    @property
    def guarded_pool(self) -> PoolSettings:
        """The pool's settings; what is held out may be trained on as little as the evaluation packs that they name."""
        if self.held_out.pack is None:
            return self.pool
        packs = (*self.pool.overlap.packs, self.held_out.pack)
        overlap = self.pool.overlap.model_copy(update={"packs": packs})
        return self.pool.model_copy(update={"overlap": overlap})


class TrainSettings(TrainingConfig):
    """All settings of a training run, which a judge can be trained with."""

    @model_validator(mode="after")
    def _trainable(self) -> "TrainSettings":
        if self.judge.engine != "transformers":
            raise ValueError("judge.engine must be transformers: only the embedded engine takes new weights every step")
        if self.judge.mode not in ("auto", "free"):
            raise ValueError("judge.mode must be free: in guided mode the policy writes no tags to be trained on")
        if self.judge.sampling.temperature == 0:
            raise ValueError("judge.sampling.temperature must be above 0: rollouts that are all the same teach nothing")
        largest = max((iteration.group for iteration in self.iterations), default=0)
        if largest > self.judge.transformers.max_sequences:
            raise ValueError(
                f"judge.transformers.max_sequences is {self.judge.transformers.max_sequences}, below a group of {largest}"
            )
        return self
