"""A service that judges coherence as well; words in a trace or a question make either judgment what a test needs."""

from typing import Any

from fastapi import FastAPI
from serve_fakes import INFO, GatedEngine, OneBook, believes, writes

from configs.settings import JudgeSettings, Limits, RetrieveSettings, ServeSettings
from retrieval.passage import Retriever
from serve.app import create_app
from serve.stores import Stores
from verifier.coherence import coherence_judge
from verifier.engines.base import EngineError
from verifier.judge import Judge
from verifier.prompt import load_prompt

RIGHT, HOLDS = 0.9, 0.6  # p(1) of correctness and of coherence
KEYS = ["accuracy", "verifier", "label_match", "coherence", "format"]
QUESTION = "What does warfarin inhibit?"
OPTIONS = {"A": "Vitamin K epoxide reductase", "B": "Thrombin"}
TRACE = "Warfarin blocks the recycling of vitamin K. The answer is A."
ITEM: dict[str, Any] = {"question": QUESTION, "options": OPTIONS, "trace": TRACE}


def about_coherence(text: str) -> bool:
    return "Decide whether it holds together" in text


def writes_both(text: str) -> str | EngineError:
    """As `writes`; asked about coherence, it thinks and answers, unless the trace is a jumble."""
    if not about_coherence(text):
        return writes(text)
    if "jumble" in text:
        return EngineError("the model is lost")
    return "<think>Each step follows.</think><answer>1</answer>"


def believes_both(text: str) -> dict[str, float]:
    if about_coherence(text):
        return {"1": HOLDS / 2, "0": (1 - HOLDS) / 2} if text.endswith("<answer>") else {}
    return believes(text)


def rewarding_engine(**fields: Any) -> GatedEngine:
    engine = GatedEngine(writes_both, believes_both, **fields)
    engine.gate.set()
    return engine


def rewarding_app(
    engine: GatedEngine | None = None,
    retriever: Retriever | None = None,
    *,
    coherence: bool = True,
    deadline_s: float = 600.0,
    retrieve: RetrieveSettings | None = None,
    stores: Stores | None = None,
    **settings: Any,
) -> FastAPI:
    judging = JudgeSettings(force_verdict=False, limits=Limits(deadline_s=deadline_s))
    judge = Judge(engine or rewarding_engine(), retriever or OneBook(), load_prompt("judge"), "free", judging)
    return create_app(
        judge,
        ServeSettings(**settings),
        INFO,
        stores,
        coherence=coherence_judge(judge) if coherence else None,
        retrieve=retrieve,
    )
