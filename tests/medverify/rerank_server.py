"""A service whose judge needs no model and takes no time, or (an argument) so many seconds for each generation.

Run by test_rerank_command.py, which reads the address off its log and stops it.
"""

import re
import sys
import zlib

import uvicorn

from configs.settings import JudgeSettings, ServeSettings
from retrieval.passage import Hit
from serve.app import create_app
from serve.schemas import Info
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
    return f"<think>thought {zlib.crc32(text.encode())}</think><answer>1</answer>"


def believes(text: str) -> dict[str, float]:
    """`p = 0.7` in the trace is what the judge believes."""
    found = re.search(r"p = (0\.\d+)", text)
    one = float(found[1]) if found else 0.5
    return {"1": one, "0": 1 - one} if text.endswith("<answer>") else {}


delay_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
judge = Judge(
    ScriptedEngine(writes, believes, delay_s=delay_s), NoBooks(), load_prompt("judge"), "free",
    JudgeSettings(force_verdict=False),
)  # fmt: skip
info = Info(
    judge_id=judge.judge_id, model="scripted", mode="free", engine={}, prompt="judge", prompt_digest="p" * 64,
    index_digest="1" * 64, version="1", quality=[],
)  # fmt: skip
uvicorn.run(create_app(judge, ServeSettings(), info), port=0, log_level="info", ws="none")
