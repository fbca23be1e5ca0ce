"""A service around a judge that needs no model, and engines that can be held. Importable from a subprocess as well."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from configs.settings import JudgeSettings, Limits, ServeSettings
from retrieval.passage import Hit, Passage, RetrievalError
from serve.app import create_app
from serve.schemas import Info
from verifier.engines.base import Completion, EngineError, Generate
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.prompt import load_prompt

CASE: dict[str, Any] = {"question": "What does warfarin inhibit?", "trace": ["It blocks VKOR.", "The answer is A."]}


def cases_of(count: int) -> list[dict[str, Any]]:
    """Cases that are not equal: equal ones are judged once."""
    return [{**CASE, "question": f"What does warfarin inhibit? ({number})"} for number in range(count)]


INFO = Info(
    judge_id="j" * 64,
    model="scripted",
    mode="free",
    engine={"engine": "scripted"},
    prompt="judge",
    prompt_digest="p" * 64,
    index_digest="1" * 64,
    version="1.2.3",
    quality=[{"metric": "AUROC", "value": 0.6}],
)


@dataclass
class OneBook:
    """Finds one passage, or is out of order. Remembers that it was closed."""

    digest: str = "1" * 64
    closed: bool = False

    async def search(self, query: str, k: int) -> list[Hit]:
        if query == "outage":
            raise RetrievalError("the index is gone")
        return [Hit(passage=Passage(id="b1", title="Warfarin", text="It inhibits VKOR."), score=0.5, rank=1)]

    async def aclose(self) -> None:
        self.closed = True


def writes(text: str) -> str | EngineError:
    """Thinks, searches once and answers 1; a word in the question makes it go wrong in one way or another."""
    if "trouble" in text:
        return EngineError("the model is out of order")
    if "silence" in text:
        return ""
    if "[1] Warfarin" in text:
        return "<think>The passage agrees.</think><answer>1</answer>"
    query = "outage" if "darkness" in text else "warfarin target"
    return f"<think>The reasoning claims VKOR.</think><search>{query}</search>"


def believes(text: str) -> dict[str, float]:
    return {"1": 0.72, "0": 0.08} if text.endswith("<answer>") else {}


@dataclass(slots=True)
class GatedEngine(ScriptedEngine):
    """Answers when the gate is open, and knows how many generations were under way together."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0
    most: int = 0
    closed: bool = False

    async def answer(self, request: Generate) -> Completion:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.gate.wait()
            return await ScriptedEngine.answer(self, request)
        finally:
            self.under_way -= 1

    async def aclose(self) -> None:
        self.closed = True


def open_engine(**fields: Any) -> GatedEngine:
    engine = GatedEngine(writes, believes, **fields)
    engine.gate.set()
    return engine


def judge_of(engine: ScriptedEngine | None = None, kind: type[Judge] = Judge, deadline_s: float = 600.0) -> Judge:
    settings = JudgeSettings(force_verdict=False, limits=Limits(deadline_s=deadline_s))
    return kind(engine or open_engine(), OneBook(), load_prompt("judge"), "free", settings)


def app_of(judge: Judge | None = None, **settings: Any) -> FastAPI:
    return create_app(judge or judge_of(), ServeSettings(**settings), INFO)


async def until(condition: Any, seconds: float = 10.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.01)
