"""verl's rollout servers as an engine: token ids in, token ids and log-probabilities out.

Read off verl 0.9.1 (`workers/rollout/{vllm_rollout,sglang_rollout}`): its servers hand the sampling parameters of a request to
vLLM or SGLang as they are, so stop strings are asked for in the words of either. They do not tell why a generation ended, nor
the probabilities of tokens that were not drawn: the end is read from the ids, and watched tokens are unknown.
"""

import math
import time
from collections.abc import AsyncIterator, Mapping
from collections.abc import Sequence as Ids
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import uuid4

from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate, Sequence
from verifier.engines.stopping import first_end
from verifier.engines.tokenizer import HFTokenizer

Backend = Literal["vllm", "sglang"]
_KEEP_STOPS: Mapping[str, str] = {"vllm": "include_stop_str_in_output", "sglang": "no_stop_trim"}
_ABORTED = frozenset({"aborted", "abort"})


class Answer(Protocol):
    """verl's `TokenOutput`, as far as it is read here."""

    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str | None
    num_preempted: int | None
    extra_fields: dict[str, Any]


class Client(Protocol):
    """verl's `LLMServerClient`: sends all turns of one `request_id` to the same server, whose cache then has what came before."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Answer: ...


@dataclass(slots=True)
class Spent:
    """What the servers told of an episode's generations."""

    seconds: float = 0.0
    preempted: int | None = None  # None: not told
    versions: list[int] = field(default_factory=list)  # of the weights, one for each generation that told it


class ServerEngine:
    """Implements `base.Engine` for one episode."""

    max_sequences = 1

    def __init__(
        self,
        client: Client,
        tokenizer: HFTokenizer,
        backend: Backend,
        max_context: int,
        others: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            client: of the servers.
            tokenizer: of their model.
            backend: what they run.
            max_context: tokens that the episode may hold, its prompt included.
            others: sampling parameters that a `Generate` does not have, such as `top_k`, as verl's trainer sets them.
        """
        self.tokenizer = tokenizer
        self.max_context = max_context
        self.spent = Spent()
        #: The last end-of-text token that was drawn, and its log-probability.
        self.end: tuple[int, float] | None = None
        self._client = client
        self._backend = backend
        self._others = dict(others or {})

    @asynccontextmanager
    async def open(self, count: int = 1) -> AsyncIterator[list[Sequence]]:
        if count != 1:
            raise EngineError("verl's servers take the episodes of a group one by one")
        yield [_Conversation(self)]

    async def preload(self, ids: Ids[int]) -> None:
        """The servers cache prefixes by themselves."""

    def describe(self) -> dict[str, str | int | float]:
        return {"engine": "verl", "backend": self._backend, "max_context": self.max_context}

    async def aclose(self) -> None:
        """The client is the trainer's."""

    async def complete(self, request_id: str, request: Generate) -> Completion:
        """One generation.

        Raises:
            ContextFullError: no room for a new token.
            EngineError: the server failed, was stopped, or gave something that cannot be read.
        """
        room = self.max_context - len(request.ids)
        if room < 1:
            raise ContextFullError(f"{len(request.ids)} tokens leave no room in a context of {self.max_context}")
        bound = min(request.max_tokens, room)
        started = time.perf_counter()
        try:
            answer = await self._client.generate(
                request_id, prompt_ids=list(request.ids), sampling_params=self._parameters(request, bound)
            )
        except Exception as error:  # whatever Ray or the server raises
            raise EngineError(f"verl's server failed: {type(error).__name__}: {error}") from error
        finally:
            self.spent.seconds += time.perf_counter() - started
        return self._read(answer, request, bound)

    def _parameters(self, request: Generate, bound: int) -> dict[str, Any]:
        """No seed: the servers draw their own, and one for all would make the rollouts of a group the same."""
        return {
            **self._others,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": bound,
            "logprobs": True,
            "stop": list(request.stop),
            _KEEP_STOPS[self._backend]: True,
            "stop_token_ids": sorted(self.tokenizer.end_ids),
        }

    def _read(self, answer: Answer, request: Generate, bound: int) -> Completion:
        if answer.stop_reason in _ABORTED:
            raise EngineError("verl's server stopped the generation")
        ids, logprobs = tuple(answer.token_ids), tuple(answer.log_probs or ())
        if not ids or len(ids) != len(logprobs) or any(map(math.isnan, logprobs)):
            raise EngineError(f"verl's server gave {len(ids)} tokens and {len(logprobs)} log-probabilities, or NaN")
        if (version := answer.extra_fields.get("global_steps")) is not None:
            self.spent.versions.append(version)
        if answer.num_preempted is not None:
            self.spent.preempted = (self.spent.preempted or 0) + answer.num_preempted
        end = first_end(self.tokenizer, ids, request.stop)
        if end is not None:
            ids, logprobs, finish = ids[:end], logprobs[:end], Finish.STOP
        elif (
            len(ids) < bound or ids[-1] in self.tokenizer.end_ids
        ):  # models may have end-of-text tokens that only the server knows
            finish = Finish.END
            self.end = ids[-1], logprobs[-1]
        else:
            finish = Finish.LENGTH if bound == request.max_tokens else Finish.CONTEXT
        unknown = (-math.inf,) * len(request.watch)
        return Completion(ids, logprobs, (unknown,) * len(ids), finish, prefilled=len(request.ids))


@dataclass(slots=True)
class _Conversation:
    engine: ServerEngine
    request_id: str = field(default_factory=lambda: uuid4().hex)

    async def generate(self, request: Generate) -> Completion:
        return await self.engine.complete(self.request_id, request)

    def close(self) -> None:
        """Nothing is held for it."""
