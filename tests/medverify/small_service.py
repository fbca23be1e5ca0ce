"""A service whose judge needs no model: what it believes stands in the trace. Importable, and run by the tests of trainers.

`p = 0.7` in a trace is p(1); "trouble" in a question or a trace puts the engine out of order.
"""

import re
from typing import Any

import uvicorn
from fastapi import FastAPI

from configs.settings import JudgeSettings, ServeSettings
from retrieval.passage import Hit
from serve.app import create_app
from serve.schemas import Info
from serve.stores import Stores
from verifier.coherence import coherence_judge
from verifier.engines.base import EngineError
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.prompt import load_prompt


class NoBooks:
    digest = "1" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        raise AssertionError(f"nothing is searched for, and {query!r} was")

    async def aclose(self) -> None:
        """Nothing to close."""


def writes(text: str) -> str | EngineError:
    if "trouble" in text:
        return EngineError("the model is out of order")
    return f"<think>I read it.</think><answer>{int(p_in(text) > 0.5)}</answer>"


def believes(text: str) -> dict[str, float]:
    p = p_in(text)
    return {"1": p, "0": 1 - p} if text.endswith("<answer>") else {}


def p_in(text: str) -> float:
    """`p = 0.7` in the trace is what the judge believes."""
    found = re.search(r"p = (0\.\d+)", text)
    return float(found[1]) if found else 0.75


def judge(delay_s: float = 0.0) -> Judge:
    settings = JudgeSettings(force_verdict=False)
    return Judge(ScriptedEngine(writes, believes, delay_s=delay_s), NoBooks(), load_prompt("judge"), "free", settings)


def service_app(delay_s: float = 0.0, stores: Stores | None = None, **settings: Any) -> FastAPI:
    """The service around such a judge, which takes `delay_s` for each generation."""
    own = judge(delay_s)
    info = Info(
        judge_id=own.judge_id,
        model="scripted",
        mode="free",
        engine={"engine": "scripted"},
        prompt="judge",
        prompt_digest="p" * 64,
        index_digest="1" * 64,
        version="1.2.3",
        quality=[],
    )
    return create_app(own, ServeSettings(**settings), info, stores, coherence=coherence_judge(own))


if __name__ == "__main__":
    uvicorn.run(service_app(), port=0, log_level="info")
