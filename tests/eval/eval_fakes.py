"""A judge whose words follow from what it reads, and nothing else. Importable from a subprocess as well."""

import asyncio
import zlib
from typing import TypeVar

from configs.settings import JudgeSettings, Limits, Sampling
from retrieval.passage import Hit, Passage
from verifier.engines.base import EngineError
from verifier.engines.scripted import ScriptedEngine
from verifier.judge import Judge
from verifier.prompt import load_prompt
from verifier.types import Case, Judgment, Status, StopReason, Usage


def number(text: str) -> int:
    return zlib.crc32(text.encode())


class ThreeBooks:
    """Finds a passage that depends on the query."""

    digest = "1" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        await asyncio.sleep(0)
        book = number(query) % 3
        return [Hit(passage=Passage(id=f"b{book}", title=f"Book {book}", text="Potassium\u2028é."), score=0.5, rank=1)]

    async def aclose(self) -> None:
        """Nothing to close."""


def writes(text: str) -> str | EngineError:
    """One search, then an answer; text about `trouble` breaks the engine."""
    if "trouble" in text:
        return EngineError("the model is out of order")
    if "[1] Book" not in text:
        return f"<think>thought {number(text)}</think><search>query {number(text) % 7}</search>"
    return f"<think>so {number(text)}</think><answer>{number(text) % 2}</answer>"


def believes(text: str) -> dict[str, float]:
    one = number(text) / 2**32
    return {"1": one * 0.9, "0": (1 - one) * 0.9} if text.endswith("<answer>") else {}


J = TypeVar("J", bound=Judge)


def scripted_judge(wave: int = 3, seed: int = 0, max_turns: int = 8, delay_s: float = 0.0, kind: type[J] = Judge) -> J:
    settings = JudgeSettings(limits=Limits(max_turns=max_turns), sampling=Sampling(seed=seed))
    engine = ScriptedEngine(writes, believes, max_sequences=wave, delay_s=delay_s)
    return kind(engine, ThreeBooks(), load_prompt("judge"), "free", settings)


def cases(count: int) -> list[Case]:
    return [Case(id=f"c{i}", question=f"Question {i}\u2028?", trace=f"Trace {i}.") for i in range(count)]


def judgment(id: str, p: float | None = None, case: Case | None = None) -> Judgment:
    """A judgment with this p(1), or one of a case that could not be judged."""
    return Judgment(
        id=id,
        status=Status.TIMEOUT if p is None else Status.SCORED,
        verdict=None if p is None else int(p > 0.5),
        p_correct=p,
        label_mass=p and 1.0,
        forced=False,
        reasoning="",
        searches=[],
        stop_reason=StopReason.DEADLINE if p is None else StopReason.ANSWERED,
        turns=1,
        format_score=None,
        usage=Usage(),
        latency_ms=None,
        seed=0,
        case_digest=case.digest if case else Case(id=id, question="q", trace="t").digest,
        judge_id="j",
    )
