"""A whole service in which much goes wrong: the engine, the retriever and the clock. Started by benchmarks/faults.py.

    python -m benchmarks.faulty_service PORT STATE

A word in the question says what fails; the clock jumps by itself.
"""

import random
import threading
import time


def jump_now_and_then() -> None:
    """Let the time of day jump, forwards and back, for everybody in this process. The monotonic clock, of course, does not."""
    true_time, offset_s = time.time, 0.0

    def jumping() -> float:
        return true_time() + offset_s

    def jump() -> None:
        nonlocal offset_s
        while True:
            time.sleep(0.2)
            offset_s = random.choice((0.0, -5.0, 3600.0, -3600.0, 86_400.0, -86_400.0))

    time.time = jumping
    time.time_ns = lambda: int(jumping() * 1e9)
    threading.Thread(target=jump, daemon=True).start()


if __name__ == "__main__":
    jump_now_and_then()  # before anybody takes the clock along

import asyncio  # noqa: E402
import math  # noqa: E402
import sys  # noqa: E402
from collections import deque  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402

from configs.settings import JudgeSettings, Limits, PathSettings, ServeSettings, Settings  # noqa: E402
from medverify.about import info_of  # noqa: E402
from retrieval.passage import Hit, PartialAnswerError, Passage, RetrievalError, UnavailableError  # noqa: E402
from serve.app import create_app  # noqa: E402
from serve.listen import listen  # noqa: E402
from serve.stores import Stores  # noqa: E402
from verifier.engines.base import Completion, EngineError, Generate  # noqa: E402
from verifier.engines.scripted import ScriptedEngine  # noqa: E402
from verifier.judge import Judge  # noqa: E402
from verifier.prompt import load_prompt  # noqa: E402
from verifier.types import Status  # noqa: E402

DEADLINE_S = 1.5  # of the service, for a case
_PASSAGE = Hit(passage=Passage(id="p1", title="Warfarin", text="Warfarin inhibits VKOR."), score=0.5, rank=1)

#: What may go wrong, and the statuses that tell the truth about it.
FAULTS: dict[str, frozenset[Status]] = {
    "engine-error": frozenset({Status.ENGINE_FAILED}),
    "engine-bug": frozenset({Status.ENGINE_FAILED}),
    "engine-hang": frozenset({Status.TIMEOUT}),
    "engine-deaf": frozenset({Status.TIMEOUT}),
    "engine-nan": frozenset({Status.ENGINE_FAILED}),
    "engine-infinite": frozenset({Status.ENGINE_FAILED}),
    "engine-empty": frozenset({Status.UNPARSEABLE}),
    "engine-babble": frozenset({Status.UNPARSEABLE, Status.TRUNCATED}),
    "search-down": frozenset({Status.RETRIEVAL_FAILED}),
    "search-bug": frozenset({Status.ENGINE_FAILED}),
    "search-slow": frozenset({Status.RETRIEVAL_FAILED}),
    "search-partial": frozenset({Status.RETRIEVAL_FAILED}),
    "search-nothing": frozenset({Status.RETRIEVAL_FAILED}),
}


def fault_of(text: str) -> str:
    """The fault that a question names, or nothing."""
    start = text.find("fault=")
    return text[start:].split(None, 1)[0].removeprefix("fault=") if start >= 0 else ""


def write(text: str) -> str | EngineError:
    """Searches once and answers 1, unless something else is asked for."""
    match fault_of(text):
        case "engine-error":
            return EngineError("the server answered 500")
        case "engine-empty":
            return ""
        case "engine-babble":
            return "<answer>perhaps</answer>" * 3
    if "[1] Warfarin" in text:
        return "<think>The passage agrees.</think><answer>1</answer>"
    return f"<think>Let me see.</think><search>warfarin {fault_of(text)}</search>"


def believe(text: str) -> dict[str, float]:
    return {"1": 0.72, "0": 0.08} if text.endswith("<answer>") else {}


@dataclass(slots=True)
class FaultyEngine(ScriptedEngine):
    """Breaks in the ways that a script cannot tell of."""

    async def answer(self, request: Generate) -> Completion:
        fault = fault_of(self.tokenizer.decode(request.ids))
        if fault == "engine-bug":
            raise ZeroDivisionError
        if fault == "engine-hang":
            await asyncio.sleep(3600)
        if fault == "engine-deaf":
            await _deaf(3 * DEADLINE_S)
        completion = await ScriptedEngine.answer(self, request)
        if fault not in ("engine-nan", "engine-infinite"):
            return completion
        value = math.nan if fault == "engine-nan" else math.inf
        watched = tuple((value,) * len(request.watch) for _ in completion.ids)
        return Completion(completion.ids, completion.logprobs, watched, completion.finish)


async def _deaf(seconds: float) -> None:
    """Sleep, whoever cancels it."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


@dataclass(slots=True)
class FaultyBook:
    """Finds one passage, or is out of order in the way that the query names."""

    digest: str = "1" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        match query.removeprefix("warfarin").strip():
            case "search-down":
                raise UnavailableError("the index cannot be reached")
            case "search-bug":
                raise KeyError("a bug")
            case "search-slow":
                await asyncio.sleep(3600)
            case "search-partial":
                raise PartialAnswerError("rows 5 to 9 cannot be searched", [(5, 9)], [[_PASSAGE]])
            case "search-nothing":
                return []
            case unknown if unknown not in ("", *FAULTS):
                raise RetrievalError(f"what is {unknown}?")
        return [_PASSAGE]

    async def aclose(self) -> None:
        """Nothing to close."""


def main(port: int, state: Path) -> None:
    """Listen until it is killed."""
    short = deque[object](maxlen=1)
    engine = FaultyEngine(write, believe, max_sequences=64, delay_s=0.005, requests=short, sequences=short)  # type: ignore[arg-type]
    limits = Limits(deadline_s=DEADLINE_S, search_timeout_s=0.4)
    judge = Judge(engine, FaultyBook(), load_prompt("judge"), "free", JudgeSettings(force_verdict=False, limits=limits))
    settings = Settings(
        judge=JudgeSettings(model="scripted"),
        serve=ServeSettings(max_queue=96, retry_after_s=1, max_retry_after_s=2, access_log=False),
        paths=PathSettings(state=state),
    )
    app = create_app(judge, settings.serve, info_of(judge, settings), Stores.of(settings))
    listen(app, host="127.0.0.1", port=port, drain_s=5, drain=app.state.judging, access_log=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
