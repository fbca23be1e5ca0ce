"""Any OpenAI-compatible completions server (vLLM, SGLang and others) as an engine.

Prompts go out as token ids and token ids come back, so that nothing is tokenised twice; only the tokenizer lives here. What
the protocol does not have is asked for in the way vLLM and SGLang spell it: the ids of generated tokens, stop strings kept in the
output, log-probabilities of chosen ids. A server that ignores one of these is told on, not guessed around.
"""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Iterable
from collections.abc import Sequence as Ids
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from configs import strict_json
from configs.settings import OpenAIEngine as EngineSettings
from retrieval.clients import retry_after_s
from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate, Sequence, Tokenizer
from verifier.engines.places import Places
from verifier.engines.stopping import first_end
from verifier.engines.tokenizer import HFTokenizer
from verifier.engines.vllm_sampling import as_drawn, turn_seed

_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
_TOP_LOGPROBS = 20  # what a server that cannot report chosen ids is asked for instead
_MAX_WAIT_S = 30.0
_MOST_STOPS = 4  # stop strings that the protocol allows; what others would have cut is cut here
# Servers take what a request does not name from the model's generation_config.json: penalties and cuts that nobody asked for.
_NOTHING_ELSE = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


@dataclass(slots=True)
class _RemoteSequence:
    engine: "OpenAIEngine"
    closed: bool = False

    async def generate(self, request: Generate) -> Completion:
        if self.closed:
            raise EngineError("the sequence is closed")
        return await self.engine._complete(request)

    def close(self) -> None:
        self.closed = True


class OpenAIEngine:
    """Implements `base.Engine` over HTTP. Prefixes are reused by the server's own cache."""

    def __init__(
        self, tokenizer_path: Path, digest: str, settings: EngineSettings, api_key: str = "", adapter: str = ""
    ) -> None:
        """Set up the client; nothing is sent yet.

        Args:
            tokenizer_path: folder with the tokenizer of the model that the server runs.
            digest: what identifies the weights, as far as it is known here.
            settings: address, model name, time-outs.
            api_key: sent as a bearer token if not empty; never part of a message or of the judge's id.
            adapter: name of a LoRA adapter that the server has for the model; empty: none.
        """
        self._tokenizer = HFTokenizer(tokenizer_path)
        self._settings = settings
        self._digest = digest
        self._adapter = adapter
        self.max_context = settings.max_context
        self.max_sequences = settings.max_sequences
        self._places = Places(settings.max_sequences)
        self._api_key = api_key.strip()
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        self._client = httpx2.AsyncClient(
            base_url=settings.base_url.rstrip("/") + "/", headers=headers, timeout=settings.timeout_s
        )

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def describe(self) -> dict[str, str | int | float]:
        return {
            "engine": "openai",
            "weights": self._digest,
            "model": self._settings.model,
            "max_context": self.max_context,
            **({"adapter": self._adapter} if self._adapter else {}),
        }

    @asynccontextmanager
    async def open(self, count: int = 1) -> AsyncIterator[list[Sequence]]:
        async with self._places.take(count):
            opened = [_RemoteSequence(self) for _ in range(count)]
            try:
                yield list(opened)
            finally:
                for sequence in opened:
                    sequence.close()

    async def preload(self, ids: Ids[int]) -> None:
        """The server caches prefixes by itself."""

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _complete(self, request: Generate) -> Completion:
        if len(request.ids) >= self.max_context:
            raise ContextFullError(f"{len(request.ids)} tokens leave no room in a context of {self.max_context}")
        room = self.max_context - len(request.ids)
        model = self._adapter or self._settings.model  # servers know an adapter as a model of its own
        end_ids = self._tokenizer.end_ids
        reply = await self._post("completions", _body(request, model, min(request.max_tokens, room), end_ids))
        return self._read(reply, request)

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._send("POST", path, body)

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """One request with retries on lost connections, time-outs and overload; anything else is an error at once."""
        failure, wait = "", 0.0
        for attempt in range(self._settings.max_retries + 1):
            await asyncio.sleep(wait)
            wait = min(_MAX_WAIT_S, 0.5 * 2**attempt) * (0.5 + random.random() / 2)  # noqa: S311 - spreads the herd
            try:
                reply = await self._client.request(method, path, json=body)
            except httpx2.TransportError as error:
                failure = self._redact(f"{type(error).__name__}: {error}")
                continue
            if reply.status_code in _RETRIED:
                failure = f"HTTP {reply.status_code}"
                wait = max(wait, min(_MAX_WAIT_S, retry_after_s(reply.headers)))
                continue
            if reply.status_code >= 400:
                raise EngineError(
                    f"{reply.request.url} answered HTTP {reply.status_code}: {self._redact(reply.text)[:300]}"
                )
            try:
                answer = strict_json.parse(reply.content)
            except ValueError as error:
                raise EngineError(f"{reply.request.url} answered with something other than JSON") from error
            if not isinstance(answer, dict):
                raise EngineError(f"{reply.request.url} answered with {type(answer).__name__}, not an object")
            return answer
        tries = self._settings.max_retries + 1
        raise EngineError(f"{self._settings.base_url} failed {tries} times, the last with {failure}")

    def _redact(self, text: str) -> str:
        """The text without the key, which servers like to quote when they refuse it."""
        return text.replace(self._api_key, "***") if self._api_key else text

    def _read(self, reply: dict[str, Any], request: Generate) -> Completion:
        try:
            choice = reply["choices"][0]
            reported = choice["logprobs"]
            chosen = tuple(float(value) for value in reported["token_logprobs"])
            ids = _token_ids(choice)
            tops: list[dict[str, float] | None] = reported.get("top_logprobs") or [None] * len(ids)
            watched = tuple(
                tuple(float((top or {}).get(f"token_id:{token}", -math.inf)) for token in request.watch) for top in tops
            )
            finish_reason, stop_reason = choice["finish_reason"], choice.get("stop_reason")
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(f"the server's completion cannot be read ({type(error).__name__}: {error})") from error
        if any(map(math.isnan, chosen)) or not ids or len(chosen) != len(ids) or len(watched) != len(ids):
            raise EngineError("the server gave no tokens, NaN log-probabilities, or not one for each token")
        usage = reply.get("usage") or {}
        cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        finish = self._finish(finish_reason, stop_reason, ids, request)
        if (end := first_end(self._tokenizer, ids, request.stop[_MOST_STOPS:])) is not None:
            ids, chosen, watched, finish = ids[:end], chosen[:end], watched[:end], Finish.STOP
        logprobs = as_drawn(chosen, request.temperature, request.top_p)
        return Completion(ids, logprobs, watched, finish, prefilled=len(request.ids) - cached, cached=cached)

    def _finish(self, reason: str, stop_reason: object, ids: tuple[int, ...], request: Generate) -> Finish:
        if reason == "length":
            full = len(request.ids) + len(ids) >= self.max_context
            return Finish.CONTEXT if full and len(ids) < request.max_tokens else Finish.LENGTH
        if reason != "stop":
            raise EngineError(f"the server ended with an unknown finish_reason {reason!r}")
        text = self._tokenizer.decode(ids)
        if any(stop in text for stop in request.stop):
            return Finish.STOP
        if isinstance(stop_reason, str) and stop_reason in request.stop:
            raise EngineError(
                "the server cuts stop strings off; it must honour include_stop_str_in_output or no_stop_trim"
            )
        return Finish.END


def served_model(settings: EngineSettings, api_key: str = "") -> str:
    """Ask a server for the one model that it serves, beside adapters of it. Blocking.

    Raises:
        EngineError: the server does not answer, or serves none or several.
    """
    headers = {"Authorization": f"Bearer {api_key.strip()}"} if api_key.strip() else {}
    address = settings.base_url.rstrip("/") + "/models"
    try:
        reply = httpx2.get(address, headers=headers, timeout=settings.timeout_s)
        models = strict_json.parse(reply.raise_for_status().content)["data"]
        names = [str(model["id"]) for model in models if model.get("parent") is None]
    except (httpx2.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{address} does not tell what it serves ({type(error).__name__})") from error
    if len(names) != 1:
        raise EngineError(f"the server has {len(names)} models: name one with judge.openai.model")
    return names[0]


def _body(request: Generate, model: str, max_tokens: int, end_ids: Iterable[int]) -> dict[str, Any]:
    """The request as vLLM and SGLang read it."""
    return {
        "model": model,
        "prompt": list(request.ids),
        "max_tokens": max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        **_NOTHING_ELSE,
        "seed": turn_seed(request.seed, request.ids),
        "stop": list(request.stop[:_MOST_STOPS]) or None,
        "stop_token_ids": sorted(end_ids),
        "include_stop_str_in_output": True,  # vLLM
        "no_stop_trim": True,  # SGLang
        "logprobs": _TOP_LOGPROBS if request.watch else 0,
        "logprob_token_ids": list(request.watch) or None,
        "return_tokens_as_token_ids": True,  # vLLM: log-probabilities by id, not by spelling
        "return_token_ids": True,
        "add_special_tokens": False,
        "skip_special_tokens": False,
    }


def _token_ids(choice: dict[str, Any]) -> tuple[int, ...]:
    if choice.get("token_ids") is not None:
        return tuple(int(token) for token in choice["token_ids"])
    tokens = choice["logprobs"]["tokens"]
    if not all(str(token).startswith("token_id:") for token in tokens):
        raise EngineError("the server returns text without token ids; it must honour return_token_ids, as vLLM does")
    return tuple(int(str(token).removeprefix("token_id:")) for token in tokens)
