"""N reasoning traces for each question of a pack, from any engine, as a pack.

Traces are made in waves of fixed composition, question after question and sample after sample; each draws from a seed of its own
that follows from the question's id and the sample's number. With the embedded engine the same questions, model, settings and
machine therefore give the same file, also when the run was killed and went on (`eval.journal`).
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from configs.reasons import with_file
from eval.journal import Journal
from eval.outage import Losses
from verifier.answers import EXTRACTOR_VERSION, extract_answer
from verifier.engines import base
from verifier.engines.base import Engine, EngineError, Generate, Tokenizer
from verifier.packs import FAILED, QuestionRow
from verifier.prompt import render_question

#: The reasoning of a trace in which the model wrote nothing: a pack's traces are not empty, and this one counts as unreadable.
EMPTY = "[nothing was written]"
_FIELD = "{question}"


class GenerationError(ValueError):
    """What was asked for cannot be generated; the message names the question or the setting, and the fix."""


class Sampling(BaseModel):
    """How traces are drawn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    samples: Annotated[int, Field(ge=1, description="Traces per question.")] = 16
    temperature: Annotated[float, Field(ge=0, le=5, description="0 is greedy.")] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1, description="Nucleus mass that is sampled from.")] = 0.95
    max_tokens: Annotated[int, Field(ge=1, description="Tokens of one trace.")] = 1024
    seed: Annotated[
        int, Field(ge=0, description="Of the whole run; each trace has a seed that is derived from it.")
    ] = 0

    @model_validator(mode="after")
    def _not_the_same_again(self) -> Self:
        if self.temperature == 0 and self.samples > 1:
            raise ValueError(
                "at temperature 0 all samples of a question are the same: take one, or a higher temperature"
            )
        return self


class TraceLine(BaseModel):
    """A line of `PREFIX.traces.jsonl`: a pack's columns, and what it cost and came from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    qid: str
    trace_id: str
    generator: str
    mode: str
    reasoning: str
    pred: Annotated[str | None, Field(description="The option that the trace chooses; null if that is unreadable.")]
    gold: str | None
    trace_label: Annotated[
        Literal[0, 1] | None, Field(description="Whether `pred` is right; null if it is unreadable.")
    ]
    sample: Annotated[int, Field(ge=1)]
    seed: int
    finish: Annotated[
        str, Field(description="stop, end, length or context, as engines say; or `failed`: there is no trace.")
    ]
    detail: Annotated[str, Field(description="Of a failure: what went wrong.")] = ""
    prompt_tokens: Annotated[int, Field(ge=0)]
    written_tokens: Annotated[int, Field(ge=0, description="Written by the model, its end-of-text token included.")]
    generation_id: Annotated[str, Field(description="SHA-256 of all that the trace depends on beside its number.")]


@dataclass(frozen=True, slots=True)
class GeneratorPrompt:
    """A prompt file with one field, cut at it: what a question contains is never read as part of the file."""

    head: str  # the same for all questions, so an engine can keep it computed
    tail: str
    digest: str  # SHA-256 of the file

    def ids(self, question: QuestionRow, tokenizer: Tokenizer) -> list[int]:
        """Token ids of the whole prompt in the model's chat frame; its pieces are tokenised one by one."""
        before, after = tokenizer.chat_frame()
        pieces = [self.head, render_question(question.asked()), self.tail]
        return [*before, *(token for piece in pieces if piece for token in tokenizer.encode(piece)), *after]


def load_generator_prompt(path: Path | None = None) -> GeneratorPrompt:
    """The shipped prompt, or a file that holds `{question}` once.

    Raises:
        GenerationError: the file cannot be read, or does not.
    """
    try:
        text = (path or resources.files("eval") / "prompts" / "generate.txt").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise GenerationError(f"the prompt cannot be read: {with_file(error)}") from error
    if text.count(_FIELD) != 1:
        raise GenerationError(f"{path}: a prompt for generation holds {_FIELD} exactly once")
    head, tail = text.split(_FIELD)
    return GeneratorPrompt(head, tail, hashlib.sha256(text.encode()).hexdigest())


@dataclass(frozen=True)
class Generation:
    """A run: which questions, by what, how."""

    engine: Engine
    name: str  # of the generator, as the pack's rows give it
    prompt: GeneratorPrompt
    sampling: Sampling
    questions: Sequence[QuestionRow]

    @property
    def total(self) -> int:
        """Traces of the finished run."""
        return len(self.questions) * self.sampling.samples

    @cached_property
    def described(self) -> dict[str, Any]:
        """What all traces depend on; the number of samples is left out, for it decides how many there are, not which."""
        return {
            "generator": self.name,
            "engine": self.engine.describe(),
            "prompt": self.prompt.digest,
            "sampling": self.sampling.model_dump(exclude={"samples"}),
            "extractor": EXTRACTOR_VERSION,
        }

    def check(self) -> None:
        """See that every question can be asked.

        Raises:
            GenerationError: one has no options to choose from, or its prompt leaves no room for a trace.
        """
        for question in self.questions:
            if not question.options:
                raise GenerationError(f"question {question.id!r} has no options to choose from")
            needed = len(self.prompt.ids(question, self.engine.tokenizer)) + self.sampling.max_tokens
            if needed > self.engine.max_context:
                raise GenerationError(
                    f"question {question.id!r} needs {needed} tokens with a trace of {self.sampling.max_tokens}, and the context "
                    f"has {self.engine.max_context}: raise the engine's max_context, or lower --max-tokens"
                )

    def resume(self, journal: Journal[TraceLine], *, retry_failed: bool = False) -> list[TraceLine]:
        """What stays of a journal of this run; see `Journal.go_on`. `retry_failed` makes again what could not be made."""

        def mismatch(index: int, line: TraceLine) -> str | None:
            question, sample = self._item(index)
            if line.trace_id != self._trace_id(question, sample):
                return f"is {line.trace_id!r}, not {self._trace_id(question, sample)!r}"
            if line.generation_id != self._generation_id(question):
                return "was made with other settings, another model, or from another text of the question"
            return None

        return journal.go_on(
            self.total, self.engine.max_sequences, mismatch, lambda line: retry_failed and line.finish == FAILED
        )

    async def waves(self, done: int = 0, journal: Journal[TraceLine] | None = None) -> AsyncIterator[list[TraceLine]]:
        """Make the traces from `done` on, wave by wave.

        Args:
            done: a multiple of the wave's size.
            journal: resumed, and given each wave before the next is asked for; waves that it knows are not made again.

        Raises:
            OutageError: nothing can be made any more; only with a journal, which keeps what was made.
        """
        before, _ = self.engine.tokenizer.chat_frame()
        await self.engine.preload([*before, *self.engine.tokenizer.encode(self.prompt.head)])
        size = self.engine.max_sequences
        losses = Losses(journal.path) if journal else None
        for start in range(done, self.total, size):
            if journal and (known := journal.known(start)):
                yield known
                continue
            wave = await self._wave([self._item(index) for index in range(start, min(start + size, self.total))])
            yield wave
            if losses and start + size < self.total:
                losses.saw(lost=all(line.finish == FAILED for line in wave), detail=wave[-1].detail)

    async def _wave(self, items: Sequence[tuple[QuestionRow, int]]) -> list[TraceLine]:
        try:
            async with self.engine.open(len(items)) as sequences:
                made = (self._trace(*item, sequence) for item, sequence in zip(items, sequences, strict=True))
                return list(await asyncio.gather(*made))
        except EngineError as error:
            return [self._line(question, sample, detail=str(error)) for question, sample in items]

    async def _trace(self, question: QuestionRow, sample: int, sequence: base.Sequence) -> TraceLine:
        sampling, tokenizer = self.sampling, self.engine.tokenizer
        ids = self.prompt.ids(question, tokenizer)
        try:
            completion = await sequence.generate(
                Generate(
                    ids,
                    sampling.max_tokens,
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    seed=seed_of(sampling.seed, question.id, sample),
                )
            )
        except EngineError as error:
            return self._line(question, sample, detail=str(error), prompt_tokens=len(ids))
        finally:
            sequence.close()
        text = tokenizer.decode(completion.ids).strip()
        return self._line(
            question,
            sample,
            reasoning=text,
            finish=completion.finish.value,
            prompt_tokens=len(ids),
            written_tokens=len(completion.ids),
        )

    def _line(
        self,
        question: QuestionRow,
        sample: int,
        *,
        reasoning: str = "",
        finish: str = FAILED,
        detail: str = "",
        prompt_tokens: int = 0,
        written_tokens: int = 0,
    ) -> TraceLine:
        pred = extract_answer(reasoning, question.options or {})
        return TraceLine(
            qid=question.id,
            trace_id=self._trace_id(question, sample),
            generator=self.name,
            mode="cot",
            reasoning=reasoning or EMPTY,
            pred=pred,
            gold=question.answer,
            trace_label=None if pred is None or question.answer is None else 1 if pred == question.answer else 0,
            sample=sample,
            seed=seed_of(self.sampling.seed, question.id, sample),
            finish=finish,
            detail=detail,
            prompt_tokens=prompt_tokens,
            written_tokens=written_tokens,
            generation_id=self._generation_id(question),
        )

    def _item(self, index: int) -> tuple[QuestionRow, int]:
        """The question and the number of the sample, counted from 1, of a line of the file."""
        return self.questions[index // self.sampling.samples], index % self.sampling.samples + 1

    def _trace_id(self, question: QuestionRow, sample: int) -> str:
        return f"{question.id}#{self.name}#{sample:03d}"

    def _generation_id(self, question: QuestionRow) -> str:
        parts = {**self.described, "question": question.asked().model_dump(), "gold": question.answer}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def seed_of(seed: int, question_id: str, sample: int) -> int:
    """The seed of one trace: the same wherever the question stands, and small enough for any server (31 bits)."""
    digest = hashlib.sha256(f"{seed}\n{sample}\n{question_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run of traces came to."""

    traces: int
    failed: int  # could not be made
    unreadable: int  # made, without a readable answer
    right: int
    cut: int  # ended at the limit of tokens or of the context
    prompt_tokens: int
    written_tokens: int

    @classmethod
    def of(cls, lines: Iterable[TraceLine]) -> "Cost":
        """Count lines."""
        every = list(lines)
        made = [line for line in every if line.finish != FAILED]
        return cls(
            len(every),
            len(every) - len(made),
            sum(line.pred is None for line in made),
            sum(line.trace_label == 1 for line in made),
            sum(line.finish in (base.Finish.LENGTH, base.Finish.CONTEXT) for line in made),
            sum(line.prompt_tokens for line in made),
            sum(line.written_tokens for line in made),
        )

    def price(self, prompt_price: float, written_price: float) -> float:
        """What it costs at prices for a million tokens."""
        return (self.prompt_tokens * prompt_price + self.written_tokens * written_price) / 1e6
