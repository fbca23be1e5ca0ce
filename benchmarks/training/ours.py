"""Our side: what `curriculum/trainer.py` does in a step, with rewards that are given."""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.training.job import LEARNING_RATE, Job, Seconds, Stopwatch, asked
from configs.load import load_settings
from configs.settings import Settings
from curriculum import metrics
from curriculum.policy.policy import Policy
from curriculum.pool.example import Example
from curriculum.rollouts import Group, roll_out
from curriculum.settings import Lora, PolicySettings
from curriculum.update import Recipe, learn
from medverify.assemble import load_judge
from verifier.engines.transformers import TransformersEngine
from verifier.reward import Reward
from verifier.types import Case


class Ours:
    """A judge and a policy, one step at a time."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.judge = load_judge(settings(job))
        assert isinstance(self.judge.engine, TransformersEngine)
        self.engine = self.judge.engine
        # Every rollout has the same length: an end is a word like any other.
        self.engine.tokenizer.end_ids = frozenset()
        micro = job.micro * (job.longest + job.tokens)
        self.policy = Policy(Path(job.model), PolicySettings(lora=Lora(rank=job.rank), row_tokens=micro))
        self.optimiser = torch.optim.AdamW(self.policy.trained, lr=LEARNING_RATE, weight_decay=0.0)
        self.recipe = Recipe(0.2, 0.3, job.tokens)

    async def step(self, number: int) -> Seconds:
        examples = [
            Example(Case.model_validate(one["case"]), one["label"], one["case"]["id"], "benchmark")
            for one in self.job.batches[number]
        ]
        watch = Stopwatch()
        self.engine.load_weights(self.policy.weights(), f"benchmark/{number}")
        await self.judge.warm_up()
        groups = await roll_out(self.judge, examples, self.job.rollouts, number)
        groups = _rewarded(groups, self.job.rewards())
        sampled = watch.wall()
        learned = learn(self.policy, self.optimiser, groups, self.recipe)
        metrics.of_rollouts(groups)
        metrics.of_update(learned)
        lengths = [len(one.sampler) for group in groups for one in group]
        spent = watch.stop(sampled, sum(lengths))
        if set(lengths) != {self.job.tokens} or learned.lessons != len(lengths):
            raise SystemExit(f"rollouts of {sorted(set(lengths))} tokens, {learned.lessons} of them learned from")
        return spent


def main(job: Job) -> None:
    """Answer for one step after the other, in one event loop."""

    async def answer_all(side: Ours) -> None:
        for number, answer in enumerate(asked()):
            answer(await side.step(number))

    asyncio.run(answer_all(Ours(job)))


def settings(job: Job) -> Settings:
    """Free episodes of one turn, all at once."""
    count = len(job.batches[0]) * job.rollouts
    given = [
        "judge.mode=free",
        "judge.prompt=brief",
        "judge.force_verdict=false",
        "judge.sampling.temperature=1.0",
        f"judge.limits.max_new_tokens={job.tokens}",
        "judge.limits.deadline_s=7200",
        "judge.limits.turn_timeout_s=7200",
        f"judge.transformers.max_sequences={count}",
        "judge.transformers.max_context=1024",
    ]
    return load_settings(None, os.environ, [*given, *job.overrides]).settings


def _rewarded(groups: Sequence[Group], rewards: Sequence[float]) -> list[Group]:
    """The rollouts with rewards that are given: an untrained policy writes no verdict."""
    given = iter(rewards)
    return [[replace(one, reward=Reward(next(given), 1.0)) for one in group] for group in groups]


if __name__ == "__main__":
    main(Job.read(sys.argv[1]))
