"""A client of verl's that says what it is told to, a retriever, and labelled examples; importable where verl is not installed."""

from dataclasses import dataclass, field
from typing import Any, Literal

from configs.settings import JudgeSettings
from retrieval.passage import Hit, Passage, RetrievalError
from verifier.engines.base import Engine
from verifier.engines.scripted import ByteTokenizer
from verifier.judge import Judge
from verifier.prompt import load_prompt
from verifier.types import Case

END = 256
PASSAGE = Passage(id="p1", title="Metformin", text="Metformin is first-line therapy of type 2 diabetes.", corpus="fake")


class Bytes(ByteTokenizer):
    """One token a byte, and an end of text."""

    end_ids = frozenset({END})


@dataclass
class FakeRetriever:
    """Finds one passage, or fails."""

    error: Exception | None = None
    digest: str = "1" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        if self.error is not None:
            raise self.error
        return [Hit(passage=PASSAGE, score=1.0, rank=1)]

    async def aclose(self) -> None:
        """Nothing to close."""


@dataclass
class Answer:
    """As verl's `TokenOutput`."""

    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str | None = "completed"
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class FakeClient:
    """Writes one text after the other, byte by byte, ended as vLLM ends it. An error in their place is raised."""

    texts: list[str | Exception]
    told: dict[str, Any] = field(default_factory=dict)  # fields of each answer that are not what they should be
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Answer:
        self.asked.append({"request_id": request_id, "prompt_ids": prompt_ids, **sampling_params})
        text = self.texts.pop(0) if self.texts else ""
        if isinstance(text, Exception):
            raise text
        ends = [place + len(stop) for stop in sampling_params["stop"] if (place := text.find(stop)) >= 0]
        ids = list(text.encode())[: min(ends)] if ends else [*text.encode(), END]
        ids = ids[: sampling_params["max_tokens"]]
        logprobs = [-(token % 7) / 10 for token in ids]
        return Answer(**{"token_ids": ids, "log_probs": logprobs, "extra_fields": {"global_steps": 3}, **self.told})


@dataclass(frozen=True)
class Example:
    """As `curriculum.pool.example.Example`."""

    case: Case
    label: Literal[0, 1]
    question_id: str
    source: str = "made-up"
    generator: str = "nobody"


def example(number: int, label: Literal[0, 1], question: int | None = None) -> Example:
    question = number if question is None else question
    case = Case(id=f"c{number}", question=f"Question {question}?", trace=f"Trace {number} says {label}.")
    return Example(case, label, f"q{question}")


def judge_over(engine: Engine, retriever: FakeRetriever | None = None, **settings: Any) -> Judge:
    how = JudgeSettings(force_verdict=False, **settings)
    return Judge(engine, retriever or FakeRetriever(), load_prompt("judge"), "free", how)


def outage() -> FakeRetriever:
    return FakeRetriever(RetrievalError("the server is away"))
