"""Training a judge on one machine: warm up → (choose → roll out → learn) for each iteration of the curriculum.

Whatever is drawn is drawn from a hash of the seed, the stage and the step, so a checkpoint needs no random state: a run that was
killed goes on with the numbers that it would have had.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch

from curriculum import metrics
from curriculum.batches import balanced_batch, batch_of, steps_of
from curriculum.distance import kl_to
from curriculum.metrics import Numbers
from curriculum.policy.policy import Policy
from curriculum.pool.example import Example
from curriculum.pool.pool import Pool
from curriculum.rollouts import Group, Rollout, roll_out
from curriculum.run import Run
from curriculum.selecting import Selection, SelectionLog, select, take
from curriculum.settings import Iteration, TrainSettings
from curriculum.update import Recipe, learn
from curriculum.warm_up import Lesson, imitate
from verifier.engines.transformers import TransformersEngine
from verifier.judge import Judge

_SHOWN = 2  # episodes of each step that are kept to read


@dataclass(frozen=True, slots=True)
class Told:
    """A step that was taken, for whoever watches."""

    stage: str
    total: int  # steps of the optimiser so far, all stages together
    step: int  # of the stage, counted from 1
    steps: int  # of the stage; 0 where that is not known
    numbers: Numbers


Tell = Callable[[Told], None]


@dataclass(slots=True)
class Trainer:
    """What all stages share."""

    settings: TrainSettings
    judge: Judge  # in free mode, on an embedded engine
    engine: TransformersEngine  # the judge's
    policy: Policy
    pool: Pool
    held_out: Sequence[Example]
    run: Run
    tell: Tell = lambda _: None

    async def train(self, lessons: Sequence[Lesson]) -> None:
        """Go through all stages, from where the run is.

        Args:
            lessons: demonstrations for the warm-up.

        Raises:
            FloatingPointError: a gradient is not a number; the last checkpoint is good.
            ResumeError: the run's files are another run's.
        """
        self.run.restore(self.policy, None)
        if self.run.progress.pool:
            self.pool.restore(self.run.progress.pool)
        if self.run.progress.stage == 0:
            await self._warm_up(lessons)
        for number, iteration in enumerate(self.settings.iterations, start=1):
            if self.run.progress.stage == number:
                await self._iterate(number, iteration)
        self.policy.save(self.run.folder / "judge")

    async def _warm_up(self, lessons: Sequence[Lesson]) -> None:
        how = self.settings.warm_up
        optimiser = self._optimiser()
        for step in range(self.run.progress.step, how.steps):
            await self._measure("warm-up", step)
            started = time.perf_counter()
            _set_rate(optimiser, warm_up_rate(how.learning_rate, step, how.steps))
            picked = batch_of(len(lessons), how.batch, step, self._seed("warm-up", 0))
            done = imitate(self.policy, optimiser, [lessons[index] for index in picked])
            self._record("warm-up", how.steps, metrics.of_warm_up(done), {"train": time.perf_counter() - started})
            self._keep(optimiser, step + 1 == how.steps)
        if how.steps == 0:
            self._keep(optimiser, stage_ends=True)

    async def _iterate(self, number: int, iteration: Iteration) -> None:
        stage = f"iteration-{number}"
        how = self.settings.judge.sampling
        recipe = Recipe(
            iteration.clip_low, iteration.clip_high, self.settings.judge.limits.max_new_tokens, iteration.mini_batches,
            how.temperature, how.top_p,
        )  # fmt: skip
        optimiser = self._optimiser()
        selection = await self._choose(number, iteration)
        steps = steps_of(len(selection.examples), iteration.batch, iteration.epochs, iteration.steps)
        for step in range(self.run.progress.step, steps):
            await self._measure(stage, step)
            started = time.perf_counter()
            batch = balanced_batch(selection.examples, iteration.batch, step, self._seed(stage, 0))
            await self._lend_weights()
            groups = await roll_out(self.judge, batch, iteration.group, self._seed(stage, step + 1))
            sampled = time.perf_counter()
            distance = self._distance(step, groups)
            _set_rate(optimiser, iteration.learning_rate * min(1.0, (step + 1) / max(1, iteration.warm_up_steps)))
            learned = learn(self.policy, optimiser, groups, recipe)
            seconds = {"sample": sampled - started, "train": time.perf_counter() - sampled}
            numbers = {**metrics.of_rollouts(groups), **metrics.of_update(learned), **distance}
            self._record(stage, steps, numbers, seconds)
            self.run.tell_episodes(stage, [group[0] for group in groups[:_SHOWN]])
            self._keep(optimiser, step + 1 == steps)
        if steps == 0:
            self._keep(optimiser, stage_ends=True)

    async def _choose(self, number: int, iteration: Iteration) -> Selection:
        if not iteration.gates.enabled:
            return take(self.pool, iteration)
        stage = f"selection-{number}"
        started = time.perf_counter()
        if self.run.progress.step == 0:
            await self._lend_weights()
        with SelectionLog(self.run.folder / f"{stage}.jsonl") as log:
            selection = await select(
                self.judge,
                self.pool,
                iteration,
                self._seed(stage, 0),
                log,
                tell=lambda so_far: self.tell(
                    Told(
                        stage,
                        self.run.progress.total,
                        len(so_far.examples),
                        iteration.budget,
                        metrics.of_selection(so_far),
                    )
                ),
            )
        if self.run.progress.step == 0:
            self._record(
                stage, 0, metrics.of_selection(selection), {"sample": time.perf_counter() - started}, counts=False
            )
        return selection

    def _distance(self, step: int, groups: Sequence[Group]) -> Numbers:
        """How far the policy that wrote these groups is from the one that the first iteration began with."""
        every = self.settings.run.kl_every
        if not every or step % every:
            return {}
        start = self.run.weights_before(1)
        return {} if start is None else {"kl_to_start": kl_to(self.policy, start, [group[0] for group in groups])}

    async def _measure(self, stage: str, step: int) -> None:
        """Greedy episodes on what is never trained on."""
        how = self.settings.held_out
        if self.held_out and step % how.every == 0:
            await self._lend_weights()
            rollouts = await self.greedy(self.held_out)
            self._record(stage, 0, metrics.of_held_out(rollouts), {}, counts=False)

    async def greedy(self, examples: Sequence[Example]) -> list[Rollout]:
        """One episode of each example at temperature 0."""
        judge = self.judge
        sampling = judge.settings.sampling.model_copy(update={"temperature": 0.0})
        settings = judge.settings.model_copy(update={"sampling": sampling})
        calm = Judge(judge.engine, judge.retriever, judge.prompt, judge.mode, settings)
        return [group[0] for group in await roll_out(calm, examples, 1, 0)]

    async def _lend_weights(self) -> None:
        """Let the engine write with the policy's present weights."""
        progress = self.run.progress
        self.engine.load_weights(self.policy.weights(), f"{self.run.folder.name}/{progress.total}")
        await self.judge.warm_up()

    def _optimiser(self) -> torch.optim.Optimizer:
        """A stage's own; in the middle of a stage as it was at the checkpoint, and the weights with it."""
        optimiser = torch.optim.AdamW(self.policy.trained, lr=0.0, weight_decay=self.policy.settings.weight_decay)
        self.run.restore(self.policy, optimiser if self.run.progress.step else None)
        return optimiser

    def _record(
        self, stage: str, steps: int, numbers: Numbers, seconds: dict[str, float], *, counts: bool = True
    ) -> None:
        if counts:
            self.run.advance()
        self.run.log(stage, numbers, seconds)
        self.tell(Told(stage, self.run.progress.total, self.run.progress.step, steps, numbers))

    def _keep(self, optimiser: torch.optim.Optimizer, stage_ends: bool) -> None:
        if stage_ends:
            self.run.next_stage(self.pool.state())
        how = self.settings.run
        if stage_ends or self.run.progress.step % how.checkpoint_every == 0:
            self.run.save(self.policy, optimiser, how.keep, stage_ends=stage_ends)

    def _seed(self, stage: str, step: int) -> int:
        text = f"{self.settings.run.seed} {stage} {step}"
        return int.from_bytes(blake2b(text.encode(), digest_size=6).digest())


def warm_up_rate(top: float, step: int, steps: int) -> float:
    """Learning rate of a supervised step: up to `top` in the first tenth of the steps, then down to 0 in a straight line."""
    rise = max(1, steps // 10)
    return top * min((step + 1) / rise, (steps - step) / max(1, steps - rise))


def _set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate
