"""A small HTTP server that speaks vLLM's dialect of completions, over an embedded engine, and misbehaves on request."""

import asyncio
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from verifier.engines.base import Completion, Finish, Generate
from verifier.engines.transformers import TransformersEngine

MODEL = "tiny"


@dataclass
class Reply:
    """An answer that the server gives instead of its own."""

    status: int = 200
    body: object = ""  # text as it is, anything else as JSON
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass
class Received:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)


@dataclass
class CompletionServer:
    """What the server says, and what it was asked."""

    engine: TransformersEngine
    url: str = ""
    received: list[Received] = field(default_factory=list)
    replies: deque[Reply] = field(default_factory=deque)  # given first, one a request
    tamper: Callable[[dict[str, Any]], None] = lambda _: None  # changes a completion before it is sent
    models: tuple[str, ...] = (MODEL,)
    adapters: tuple[str, ...] = ()  # to the first model

    def answer(self, request: Received) -> Reply:
        self.received.append(request)
        if self.replies:
            return self.replies.popleft()
        if request.path == "/v1/models":
            models = [{"id": name, "parent": None} for name in self.models]
            adapters = [{"id": name, "parent": self.models[0]} for name in self.adapters]
            return Reply(body={"object": "list", "data": [*models, *adapters]})
        body = request.body
        if len(body["stop"] or ()) > 4:
            return Reply(400, {"error": {"message": "body.stop: list should have at most 4 items"}})
        if len(body["prompt"]) + body["max_tokens"] > self.engine.max_context:
            return Reply(400, {"error": {"message": f"maximum context length is {self.engine.max_context} tokens"}})
        generate = Generate(
            body["prompt"], body["max_tokens"], tuple(body["stop"] or ()), tuple(body["logprob_token_ids"] or ()),
            body["temperature"], body["top_p"], body["seed"],
        )  # fmt: skip
        completion = self.spell(asyncio.run(self._generate(generate)), generate)
        self.tamper(completion)
        return Reply(body=completion)

    async def _generate(self, request: Generate) -> Completion:
        async with self.engine.open() as (sequence,):
            return await sequence.generate(request)

    def spell(self, done: Completion, request: Generate) -> dict[str, Any]:
        """A completion as vLLM puts it, with the chosen token among the reported ones."""
        tops = [
            {f"token_id:{token}": logprob for token, logprob in zip(request.watch, watched, strict=True)}
            for watched in done.watched
        ]
        text = self.engine.tokenizer.decode(done.ids)
        stopped = [stop for stop in request.stop if stop in text]
        choice = {
            "index": 0,
            "text": text,
            "token_ids": list(done.ids),
            "logprobs": {
                "tokens": [f"token_id:{token}" for token in done.ids],
                "token_logprobs": list(done.logprobs),
                "top_logprobs": tops if request.watch else None,
                "text_offset": [0] * len(done.ids),
            },
            "finish_reason": "stop" if done.finish in (Finish.STOP, Finish.END) else "length",
            "stop_reason": stopped[0] if stopped else None,
        }
        usage = {"prompt_tokens": len(request.ids), "prompt_tokens_details": {"cached_tokens": done.cached}}
        return {"id": "cmpl-1", "object": "text_completion", "model": MODEL, "choices": [choice], "usage": usage}


@contextmanager
def serving(engine: TransformersEngine) -> Iterator[CompletionServer]:
    """A server on a free port, its thread joined in the end."""
    server = CompletionServer(engine)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            reply = server.answer(Received(self.path, dict(self.headers), body))
            time.sleep(reply.delay_s)
            data = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(data)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # joined when closed

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that leave early are what some tests are about."""

    with Server(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def unreported(completion: dict[str, Any]) -> None:
    """As of a server that reports the likeliest tokens only."""
    logprobs = completion["choices"][0]["logprobs"]
    logprobs["top_logprobs"] = [{"token_id:7": -0.1} for _ in logprobs["tokens"]]


def without_ids(completion: dict[str, Any]) -> None:
    """As of a server that does not know of token ids."""
    choice = completion["choices"][0]
    del choice["token_ids"]
    choice["logprobs"]["tokens"] = ["a" for _ in choice["logprobs"]["tokens"]]


def ids_in_spelling(completion: dict[str, Any]) -> None:
    """As of an older vLLM."""
    del completion["choices"][0]["token_ids"]


def in_logprobs(name: str, change: Callable[[list[Any]], object]) -> Callable[[dict[str, Any]], None]:
    def tamper(completion: dict[str, Any]) -> None:
        logprobs = completion["choices"][0]["logprobs"]
        logprobs[name] = change(logprobs[name])

    return tamper


def in_choice(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda completion: completion["choices"][0].update(fields)


NAN = math.nan
