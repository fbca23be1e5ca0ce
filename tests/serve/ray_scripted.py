"""The judge's application with scripted judges in its replicas, which take their time; a file of the tests names it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from pydantic import Field
from ray.serve import Application
from serve_fakes import INFO, believes, judge_of, writes

from configs.settings import JudgeSettings, Limits, OpenAIEngine, PathSettings, ServeSettings, Settings
from serve.ray_service import JudgeCluster, application
from serve.schemas import Info
from verifier.coherence import coherence_judge
from verifier.engines.base import EngineError, Sequence
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge


class NarrowEngine(ScriptedEngine):
    """Takes a few episodes at once, as a model does; the others wait."""

    def __init__(self, places: int, delay_s: float) -> None:
        super().__init__(_writes, believes, delay_s=delay_s)
        self._places = asyncio.Semaphore(places)

    @asynccontextmanager
    async def open(self, count: int = 1) -> AsyncIterator[list[Sequence]]:
        async with self._places, super().open(count) as sequences:
            yield sequences


class Arguments(JudgeCluster):
    """How many judges, and how slow."""

    delay_s: Annotated[float, Field(description="For each of the two turns of an episode.")] = 0.2
    load_s: Annotated[float, Field(description="To start a judge: long enough to be seen.")] = 3.0
    at_once: int = 4
    drain_s: int = 30
    deadline_s: float = 60.0
    state: Path


def judge(args: Arguments) -> Application:
    """Replicas of a judge that needs no model."""
    limits = Limits(deadline_s=args.deadline_s)
    settings = Settings(
        judge=JudgeSettings(engine="openai", openai=OpenAIEngine(max_sequences=args.at_once), limits=limits),
        serve=ServeSettings(drain_s=args.drain_s),
        paths=PathSettings(state=args.state),
    )

    def load() -> tuple[list[Judge], Info]:
        time.sleep(args.load_s)
        loaded = judge_of(NarrowEngine(args.at_once, args.delay_s), deadline_s=args.deadline_s)
        coherence = coherence_judge(loaded)
        ids = {"judge_id": loaded.judge_id, "coherence_judge_id": coherence.judge_id}
        return [loaded, coherence], INFO.model_copy(update={**ids, "index_digest": loaded.retriever.digest})

    return application(load, args, settings)


def _writes(text: str) -> str | EngineError:
    if "poison" in text:
        os._exit(1)
    return writes(text)
