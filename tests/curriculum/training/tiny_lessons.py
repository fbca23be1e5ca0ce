"""A judge that a test can train in seconds: a tiny model, a task that it can learn, and traces whose label it can see."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tiny_model import config, save_model, start
from transformers import LlamaForCausalLM
from verifier_fakes import FakeRetriever

from configs.settings import JudgeSettings, Limits, Sampling, TransformersEngine
from curriculum.policy.policy import Policy
from curriculum.pool.example import Example
from curriculum.pool.pool import Pool
from curriculum.pool.settings import PoolSettings
from curriculum.run import Run
from curriculum.settings import (
    FilterSettings,
    HeldOut,
    Iteration,
    Lora,
    PolicySettings,
    RunSettings,
    TrainSettings,
    WarmUp,
)
from curriculum.trainer import Tell, Trainer
from curriculum.warm_up import Demonstration, Lesson, lesson
from verifier.judge import Judge
from verifier.prompt import Prompt, load_prompt
from verifier.types import Case

PLACES = 16
_POOL = PoolSettings.model_validate(
    {"sources": {"tiny": {"kind": "pack", "prefix": "nowhere", "licence": "CC0-1.0", "provenance": "these tests"}}}
)


def example(number: int, label: int) -> Example:
    """A trace of y is right, and one of n is wrong."""
    text = f"{number} {('y' if label else 'n') * 16}"
    case = Case(id=f"{number}-{label}", question="q", trace=text)
    return Example(case, 1 if label else 0, f"q{number}", "tiny")


def examples(count: int, first: int = 0) -> list[Example]:
    return [example(number, label) for number in range(first, first + count // 2) for label in (0, 1)]


def tiny_prompt(folder: Path) -> Prompt:
    """Without instructions: every byte is a token here."""
    file = folder / "tiny.txt"
    file.write_text("{question} {trace}")
    return load_prompt(str(file))


def demonstrations(count: int) -> list[Demonstration]:
    """The form of an episode, with a verdict that has nothing to do with the trace."""
    rows = []
    for number, one in enumerate(examples(count, first=1000)):
        verdict = number // 2 % 2
        text = f"<think>\na\n</think>\n<answer>{verdict}</answer>"
        rows.append(
            Demonstration.model_validate(
                {"id": one.case.id, "question": {"text": "q"}, "trace": {"text": one.case.trace.render()}, "label": verdict,
                 "pieces": [{"author": "policy", "text": text}]}
            )
        )  # fmt: skip
    return rows


def settings(**changed: Any) -> TrainSettings:
    """Warm up on the form, then reinforce the verdict."""
    judge = JudgeSettings(
        mode="free",
        force_verdict=False,
        limits=Limits(max_turns=2, max_searches=1, max_new_tokens=48),
        sampling=Sampling(temperature=1.0),
        transformers=TransformersEngine(max_sequences=PLACES, max_context=256, dtype="float32", device="cpu"),
    )
    policy = PolicySettings(lora=Lora(rank=0), device="cpu", precision="float32", row_tokens=1024)
    base = TrainSettings(
        judge=judge,
        pool=_POOL,
        policy=policy,
        warm_up=WarmUp(steps=60, batch=16, learning_rate=5e-3, verdict_weight=2.0),
        iterations=(Iteration(budget=32, steps=24, epochs=99, batch=8, group=8, learning_rate=5e-4, warm_up_steps=1),),
        held_out=HeldOut(examples=16, every=12),
        run=RunSettings(checkpoint_every=10, kl_every=4),
    )
    return base.model_copy(update=changed)


def short(**changed: Any) -> TrainSettings:
    """All stages, a few steps each, with a checkpoint every second one."""
    steps = {"epochs": 1, "batch": 4, "group": 4, "learning_rate": 1e-3, "warm_up_steps": 1}
    return settings(
        warm_up=WarmUp(steps=5, batch=4, learning_rate=5e-3),
        iterations=(
            Iteration(budget=12, steps=3, gates=FilterSettings(enabled=False), **steps),
            Iteration(budget=8, steps=2, **steps),
        ),
        held_out=HeldOut(examples=4, every=3),
        run=RunSettings(checkpoint_every=2, kl_every=1),
        **changed,
    )


def tiny_model(folder: Path) -> Path:
    """Weights as small as those of real models at their start: it has to be taught."""
    torch.manual_seed(20)
    return save_model(folder, LlamaForCausalLM(config(initializer_range=0.06)))


def train(
    model: Path,
    folder: Path,
    wanted: TrainSettings,
    tell: Tell = lambda _: None,
    *,
    pool: Sequence[Example] | None = None,
) -> Policy:
    """A whole run, from where its folder is."""
    with Run.open(folder, wanted) as run:
        engine = start(model, max_sequences=PLACES, max_context=256)
        folder.mkdir(exist_ok=True)
        judge = Judge(engine, FakeRetriever(), tiny_prompt(folder), "free", wanted.judge)
        policy = Policy(model, wanted.policy, wanted.run.seed)
        drawn = Pool(examples(64) if pool is None else pool, seed=0)
        trainer = Trainer(wanted, judge, engine, policy, drawn, examples(16, first=500), run, tell)
        asyncio.run(_to_the_end(trainer, lessons_for(judge, wanted)))
    return policy


def lessons_for(judge: Judge, wanted: TrainSettings) -> list[Lesson]:
    weight = wanted.warm_up.verdict_weight
    return [lesson(one, judge.prompt, judge.engine.tokenizer, weight) for one in demonstrations(64)]


async def _to_the_end(trainer: Trainer, lessons: Sequence[Lesson]) -> None:
    try:
        await trainer.train(lessons)
    finally:
        await trainer.judge.aclose()
