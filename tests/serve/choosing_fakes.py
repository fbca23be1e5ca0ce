"""A service whose judge believes what a trace says of itself, for tests of choosing among traces."""

import re
from typing import Any

from fastapi import FastAPI
from serve_fakes import app_of, judge_of, open_engine

QUESTION = "What does warfarin inhibit?"
OPTIONS = {"A": "Vitamin K epoxide reductase", "B": "Thrombin", "C": "Factor X"}


def trace(answer: str | None, p: float | None, note: str = "") -> str:
    """A trace that comes to an answer, and whose p is as it says; None: it cannot be judged."""
    about = "This one cannot be judged." if p is None else f"Belief {p:.3f}."
    return f"{about} {note}\nThe answer is {answer}." if answer else f"{about} {note}"


def _writes(text: str) -> str:
    if "cannot be judged" in text:
        return ""
    return "<think>It says so.</think><answer>1</answer>" if _belief(text) > 0.5 else "<answer>0</answer>"


def _believes(text: str) -> dict[str, float]:
    return {"1": _belief(text), "0": 1 - _belief(text)} if text.endswith("<answer>") else {}


def _belief(text: str) -> float:
    said = re.findall(r"Belief (\d\.\d+)", text)
    return float(said[-1]) if said else 0.5


def choosing_app(**settings: Any) -> FastAPI:
    engine = open_engine()
    engine.script, engine.beliefs = _writes, _believes
    return app_of(judge_of(engine), **settings)
