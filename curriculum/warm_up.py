"""The supervised warm-up: whole episodes as a good judge would write them, learned token by token, the evidence masked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, Field, ValidationError

from curriculum.policy.policy import Policy
from curriculum.policy.rows import Written, rows
from curriculum.update import take_step
from verifier.engines.base import Tokenizer
from verifier.parse import Tag
from verifier.prompt import Prompt, prompt_ids
from verifier.transcript import Author
from verifier.types import Case, Question, Trace


class DemonstrationError(ValueError):
    """A file of demonstrations that cannot be used; the message names file and line."""


class _Piece(BaseModel):
    author: Literal[Author.POLICY, Author.EVIDENCE]
    text: Annotated[str, Field(min_length=1)]


class Demonstration(BaseModel):
    """A line of a file of demonstrations."""

    id: str
    question: Question
    trace: Trace
    label: Literal[0, 1]
    pieces: Annotated[tuple[_Piece, ...], Field(min_length=1)]

    @property
    def case(self) -> Case:
        """What the judge is shown."""
        return Case(id=self.id, question=self.question, trace=self.trace)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A demonstration as tokens, and how much each of the policy's counts."""

    written: Written
    weights: tuple[float, ...]  # of the policy's tokens, in order


@dataclass(frozen=True, slots=True)
class WarmedUp:
    """What a supervised step did."""

    loss: float  # weighted mean over the tokens, in nats
    verdict_loss: float  # mean over the digits of the verdicts, in nats
    tokens: int  # of the policy
    computed: int  # tokens that went through the model
    gradient: float


def read_demonstrations(files: Sequence[Path]) -> list[Demonstration]:
    """Read files of `medverify world` or `medverify swapped-facts`.

    Raises:
        DemonstrationError: a file is missing, or a line is not a demonstration.
    """
    read = []
    for path in files:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise DemonstrationError(f"{path}: {error.strerror}") from error
        for number, line in enumerate(lines, start=1):
            try:
                read.append(Demonstration.model_validate_json(line))
            except ValidationError as error:
                faults = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
                raise DemonstrationError(f"{path}, line {number}: {faults}") from error
    return read


def lesson(demonstration: Demonstration, prompt: Prompt, tokenizer: Tokenizer, verdict_weight: float) -> Lesson:
    """A demonstration as the tokens that an episode would hold."""
    start = prompt_ids(prompt, demonstration.case, tokenizer)
    ids, policy, weights = list(start), list[bool](), list[float]()
    for piece in demonstration.pieces:
        by_policy = piece.author is Author.POLICY
        tokens = tokenizer.encode(piece.text)
        ids += tokens
        policy += [by_policy] * len(tokens)
        if by_policy:
            weights += _weights(piece.text, tokens, tokenizer, verdict_weight)
    return Lesson(Written(tuple(ids), len(start), tuple(policy)), tuple(weights))


def imitate(policy: Policy, optimiser: torch.optim.Optimizer, lessons: Sequence[Lesson]) -> WarmedUp:
    """One supervised step: the weighted mean of the tokens' negative log-probabilities, over the whole batch."""
    total = sum(sum(one.weights) for one in lessons)
    verdicts = sum(weight > 1 for one in lessons for weight in one.weights)
    loss, verdict_loss, computed = 0.0, 0.0, 0
    optimiser.zero_grad(set_to_none=True)
    for taken, row in rows([one.written for one in lessons], policy.settings.row_tokens, policy.device):
        weights_P = torch.tensor([weight for index in taken for weight in lessons[index].weights], device=policy.device)
        logprobs_P = policy.score(row).logprobs_P
        part = -(weights_P * logprobs_P).sum() / total
        part.backward()  # type: ignore[no-untyped-call]
        loss += float(part.detach())
        verdict_loss -= float(logprobs_P.detach()[weights_P > 1].sum()) / max(verdicts, 1)
        computed += row.tokens
    tokens = sum(len(one.weights) for one in lessons)
    return WarmedUp(loss, verdict_loss, tokens, computed, take_step(policy, optimiser))


def _weights(text: str, tokens: Sequence[int], tokenizer: Tokenizer, verdict_weight: float) -> list[float]:
    """1 for each token, but for the one that spells the digit of the verdict."""
    weights = [1.0] * len(tokens)
    at = text.rfind(Tag.ANSWER.opening)
    if at >= 0:
        digit = at + len(Tag.ANSWER.opening)  # the character that decides
        ends = [len(tokenizer.decode(tokens[: count + 1])) for count in range(len(tokens))]
        weights[next(index for index, end in enumerate(ends) if end > digit)] = verdict_weight
    return weights
