"""The HTTP engine, against a real server that runs the tiny model: the same completions, and no number that nobody gave."""

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from completion_server import (
    MODEL,
    NAN,
    CompletionServer,
    Reply,
    ids_in_spelling,
    in_choice,
    in_logprobs,
    serving,
    unreported,
    without_ids,
)  # fmt: skip
from tiny_model import MODEL_CONTEXT, generate
from verifier_fakes import CASE, judge

from configs.settings import OpenAIEngine as EngineSettings
from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate
from verifier.engines.openai import OpenAIEngine, served_model
from verifier.engines.transformers import TransformersEngine
from verifier.engines.vllm_sampling import turn_seed
from verifier.types import Status, StopReason

KEY = "sk-very-secret"


@pytest.fixture
def server(engine: TransformersEngine) -> Iterator[CompletionServer]:
    with serving(engine) as started:
        yield started


Connect = Callable[..., OpenAIEngine]


@pytest.fixture
async def connect(tiny: Path, server: CompletionServer) -> AsyncIterator[Connect]:
    """Make an engine that speaks to the server, closed in the end. Settings may be given."""
    async with AsyncExitStack() as stack:

        def _connect(api_key: str = "", adapter: str = "", **settings: Any) -> OpenAIEngine:
            whole = {"base_url": server.url, "model": MODEL, "max_context": MODEL_CONTEXT, "max_retries": 1, **settings}
            engine = OpenAIEngine(tiny, "d" * 64, EngineSettings(**whole), api_key, adapter)
            stack.push_async_callback(engine.aclose)
            return engine

        yield _connect


async def ask(engine: OpenAIEngine, ids: Any = (5, 6), max_tokens: int = 8, **how: Any) -> Completion:
    async with engine.open() as (sequence,):
        return await sequence.generate(Generate(ids, max_tokens, **how))


# ---- the same as in this process -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "finish"),
    [
        ({}, Finish.LENGTH),
        ({"watch": (16, 17, 40)}, Finish.LENGTH),
        ({"temperature": 0.9, "top_p": 0.9, "seed": 4, "watch": (17,)}, Finish.LENGTH),
        ({"max_tokens": 1, "watch": (16, 17)}, Finish.LENGTH),
        ({"max_tokens": 40, "stop": ("never", "e", "i", "o", "a", "s", "p")}, Finish.STOP),
        ({"max_tokens": 60, "temperature": 5.0, "seed": 5}, Finish.END),
    ],
    ids=["greedy", "watched", "sampled", "one token", "stop", "end"],
)
async def test_completions_are_those_of_the_embedded_engine(
    connect: Connect, engine: TransformersEngine, how: dict[str, Any], finish: Finish
) -> None:
    remote = connect()
    for text in ("The patient has", "K+ <3.5 é"):
        ids, whole = engine.tokenizer.encode(text), {"max_tokens": 12, **how}
        sent = {**whole, "seed": turn_seed(whole.get("seed", 0), ids)}
        local = await generate(engine, ids, **sent)
        done = await ask(remote, ids, **whole)
        assert replace(done, logprobs=()) == replace(local, logprobs=())
        assert done.logprobs == local.logprobs or "temperature" in how
        assert all(map(math.isnan, done.logprobs)) == ("temperature" in how)  # servers tell them at temperature 1
        assert local.finish is finish


async def test_the_endings_are_told_apart(connect: Connect, server: CompletionServer) -> None:
    engine = connect(max_context=256)
    assert (await ask(engine, [5] * 250, 50)).finish is Finish.CONTEXT
    assert server.received[-1].body["max_tokens"] == 6  # a server refuses to promise more than it has room for
    assert (await ask(engine, [5] * 250, 6)).finish is Finish.LENGTH
    with pytest.raises(ContextFullError):
        await ask(engine, [5] * 256, 1)
    assert len(server.received) == 2


async def test_ids_spelt_as_text_are_ids(connect: Connect, server: CompletionServer) -> None:
    engine = connect()
    plain = await ask(engine, watch=(17,))
    server.tamper = ids_in_spelling
    assert await ask(engine, watch=(17,)) == plain


async def test_what_the_server_took_from_its_cache(connect: Connect, server: CompletionServer) -> None:
    server.tamper = lambda completion: completion["usage"]["prompt_tokens_details"].update(cached_tokens=3)
    done = await ask(connect(), [5, 6, 7, 8, 9])
    assert (done.prefilled, done.cached) == (2, 3)
    server.tamper = lambda completion: completion.update(usage=None)
    done = await ask(connect(), [5, 6, 7, 8, 9])
    assert (done.prefilled, done.cached) == (5, 0)


async def test_a_whole_judgment_is_the_same(connect: Connect, engine: TransformersEngine) -> None:
    how: dict[str, Any] = {"mode": "guided", "guided": {"think_tokens": 8, "query_tokens": 4}}
    remote, local = await judge(connect(), **how).verify(CASE), await judge(engine, **how).verify(CASE)
    assert remote.status is Status.SCORED
    assert (remote.verdict, remote.reasoning) == (local.verdict, local.reasoning)
    assert [search.query for search in remote.searches] == [search.query for search in local.searches]
    assert remote.p_correct == pytest.approx(local.p_correct, abs=1e-4)
    assert remote.usage.policy_tokens == local.usage.policy_tokens
    assert remote.judge_id != local.judge_id


async def test_a_server_is_asked_what_it_serves(connect: Connect, server: CompletionServer) -> None:
    settings = connect()._settings
    assert await asyncio.to_thread(served_model, settings) == MODEL
    server.replies.append(Reply(body="<html>"))
    with pytest.raises(EngineError, match="does not tell what it serves"):
        await asyncio.to_thread(served_model, settings)


@pytest.mark.parametrize("models", [(), ("a", "b")])
async def test_a_choice_of_models_is_the_users(
    connect: Connect, server: CompletionServer, models: tuple[str, ...]
) -> None:
    server.models = models
    with pytest.raises(EngineError, match=r"judge\.openai\.model"):
        await asyncio.to_thread(served_model, connect()._settings)


async def test_adapters_of_a_model_are_no_choice(connect: Connect, server: CompletionServer) -> None:
    server.adapters = ("mine", "yours")
    assert await asyncio.to_thread(served_model, connect()._settings) == MODEL


async def test_an_adapter_is_asked_for_by_its_name(connect: Connect, server: CompletionServer) -> None:
    engine = connect(adapter="mine")
    await ask(engine)
    assert server.received[-1].body["model"] == "mine"
    assert engine.describe() == {**connect().describe(), "adapter": "mine"}


async def test_what_the_server_would_add_is_declined(connect: Connect, server: CompletionServer) -> None:
    """vLLM takes what a request leaves out from the model's own defaults, penalties among them."""
    await ask(connect())
    body = server.received[-1].body
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (-1, 0, 1)
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0, 0)
    assert body["stop_token_ids"] == [0, 2]  # where the embedded engine ends as well


async def test_each_turn_draws_its_own_numbers(connect: Connect, server: CompletionServer) -> None:
    engine = connect()
    for ids in ([5, 6], [5, 6], [5, 6, 7]):
        await ask(engine, ids, 1, temperature=1.0, seed=3)
    first, again, later = (request.body["seed"] for request in server.received)
    assert first == again != later


# ---- replies that cannot be trusted ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (without_ids, "return_token_ids"),
        (in_logprobs("token_logprobs", lambda values: [NAN, *values[1:]]), "NaN"),
        (in_logprobs("token_logprobs", lambda values: values[1:]), "one for each token"),
        (in_logprobs("token_logprobs", lambda values: [None, *values[1:]]), "cannot be read"),
        (in_logprobs("token_logprobs", lambda values: None), "cannot be read"),
        (in_logprobs("top_logprobs", lambda values: values[1:]), "one for each token"),
        (in_logprobs("top_logprobs", lambda values: ["x"] * len(values)), "cannot be read"),
        (in_choice(logprobs=None), "cannot be read"),
        (in_choice(token_ids=["x"]), "cannot be read"),
        (in_choice(token_ids=[], logprobs={"tokens": [], "token_logprobs": []}), "no tokens"),
        (in_choice(finish_reason="abort"), "unknown finish_reason 'abort'"),
        (in_choice(finish_reason=None), "unknown finish_reason"),
        (in_choice(finish_reason="stop", stop_reason="</answer>"), "cuts stop strings off"),
        (lambda completion: completion.update(choices=[]), "cannot be read"),
        (lambda completion: completion.pop("choices"), "cannot be read"),
        (lambda completion: completion.update(choices="x"), "cannot be read"),
    ],
)
async def test_replies_that_cannot_be_read_are_errors(
    connect: Connect, server: CompletionServer, tamper: Callable[[dict[str, Any]], None], message: str
) -> None:
    server.tamper = tamper
    with pytest.raises(EngineError, match=message):
        await ask(connect(), watch=(17, 18), stop=("</answer>",))
    assert len(server.received) == 1  # nothing to be gained from asking again


@pytest.mark.parametrize("body", ["<html>", "", "[]", "7", "null", '{"error": "x"}'])
async def test_bodies_of_another_kind_are_errors(connect: Connect, server: CompletionServer, body: str) -> None:
    server.replies.append(Reply(body=body))
    with pytest.raises(EngineError):
        await ask(connect())


@pytest.mark.parametrize("tamper", [unreported, in_logprobs("top_logprobs", lambda values: None),
                                    in_logprobs("top_logprobs", lambda values: [None] * len(values))])  # fmt: skip
async def test_labels_that_are_not_reported_are_no_verdict(
    connect: Connect, server: CompletionServer, tamper: Callable[[dict[str, Any]], None]
) -> None:
    server.tamper = tamper
    engine = connect()
    assert (await ask(engine, max_tokens=2, watch=(16, 17))).watched == ((-math.inf, -math.inf),) * 2
    short = {"think_tokens": 8, "query_tokens": 4}
    judgment = await judge(engine, mode="guided", guided={**short, "max_searches": 1}).verify(CASE)
    assert (judgment.status, judgment.stop_reason) == (Status.UNPARSEABLE, StopReason.ANSWERED)
    assert (judgment.verdict, judgment.p_correct, judgment.label_mass) == (None, None, None)
    # With a choice to make between searching and answering, the likelihoods of the tags are missing as well.
    judgment = await judge(engine, mode="guided", guided={**short, "min_searches": 0}).verify(CASE)
    assert (judgment.status, judgment.verdict) == (Status.ENGINE_FAILED, None)
    assert "likelihood of the tags" in judgment.detail


async def test_watched_numbers_that_are_none_fail_the_engine(connect: Connect, server: CompletionServer) -> None:
    server.tamper = in_logprobs("top_logprobs", lambda tops: [dict.fromkeys(top, NAN) for top in tops or []] or None)
    judgment = await judge(connect(), mode="guided", guided={"think_tokens": 8, "query_tokens": 4}).verify(CASE)
    assert (judgment.status, judgment.verdict) == (Status.ENGINE_FAILED, None)
    assert "NaN" in judgment.detail


# ---- trouble on the way ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_overload_is_waited_out(connect: Connect, server: CompletionServer, status: int) -> None:
    server.replies.append(Reply(status, "busy"))
    assert len((await ask(connect())).ids) == 8
    assert len(server.received) == 2
    assert server.received[0].body == server.received[1].body


async def test_the_server_says_how_long_to_wait(connect: Connect, server: CompletionServer) -> None:
    server.replies += [
        Reply(503, headers={"Retry-After": "0.9"}),
        Reply(503, headers={"Retry-After": "Wed, 21 Oct 2065 07:28:00 GMT"}),
    ]
    await ask(connect(max_retries=2))
    first, second, _ = server.received
    assert second.at - first.at >= 0.89


@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (1, 2)])
async def test_patience_ends(connect: Connect, server: CompletionServer, retries: int, tries: int) -> None:
    server.replies += [Reply(503)] * 5
    with pytest.raises(EngineError, match=f"failed {tries} times, the last with HTTP 503"):
        await ask(connect(max_retries=retries))
    assert len(server.received) == tries


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_a_refusal_is_final_and_quoted(connect: Connect, server: CompletionServer, status: int) -> None:
    server.replies.append(Reply(status, {"error": {"message": "maximum context length is 4096"}}))
    with pytest.raises(EngineError, match=f"HTTP {status}: .*maximum context length") as raised:
        await ask(connect())
    assert len(str(raised.value)) < 500
    assert len(server.received) == 1


async def test_nobody_there(connect: Connect) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EngineError, match="ConnectError"):
        await ask(connect(base_url=f"http://127.0.0.1:{port}/v1"))


async def test_a_slow_server_is_not_waited_for(connect: Connect, server: CompletionServer) -> None:
    server.replies.append(Reply(delay_s=0.5))
    engine = connect(timeout_s=0.1, max_retries=0)
    with pytest.raises(EngineError, match="Timeout"):
        await ask(engine)
    server.replies.append(Reply(delay_s=0.5))
    judgment = await judge(connect(), mode="guided", limits={"deadline_s": 0.1}).verify(CASE)
    assert (judgment.status, judgment.verdict) == (Status.TIMEOUT, None)


async def test_a_caller_who_leaves_gives_the_place_back(connect: Connect, server: CompletionServer) -> None:
    server.replies.append(Reply(delay_s=0.3))
    engine = connect(max_sequences=1)
    task = asyncio.ensure_future(ask(engine))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len((await ask(engine)).ids) == 8


# ---- the key ---------------------------------------------------------------------------------------------------------


async def test_the_key_is_sent(connect: Connect, server: CompletionServer) -> None:
    await ask(connect(KEY))
    await ask(connect(f"{KEY}\n"))  # as it comes out of many a file
    await ask(connect())
    assert [request.headers.get("Authorization") for request in server.received] == [
        f"Bearer {KEY}",
        f"Bearer {KEY}",
        None,
    ]


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_the_key_is_never_told(connect: Connect, server: CompletionServer, status: int) -> None:
    server.replies.append(Reply(status, {"error": f"Incorrect API key provided: {KEY}. Authorization: Bearer {KEY}"}))
    engine = connect(KEY, max_retries=0)
    with pytest.raises(EngineError) as raised:
        await ask(engine)
    assert KEY not in str(raised.value)
    assert KEY not in str(engine.describe())
    assert KEY not in repr(engine)


# ---- places ----------------------------------------------------------------------------------------------------------


async def test_no_more_places_than_there_are(connect: Connect) -> None:
    for count in (0, -1, 4):
        with pytest.raises(EngineError, match="max_sequences is 3"):
            async with connect(max_sequences=3).open(count):
                pass


async def test_two_that_want_all_places_do_not_wait_for_ever(connect: Connect) -> None:
    """Each must not hold what the other is waiting for."""
    engine = connect(max_sequences=3)

    async def take(count: int) -> int:
        async with engine.open(count) as places:
            await asyncio.sleep(0)
            return len(places)

    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await first.enter_async_context(engine.open())
        await second.enter_async_context(engine.open())
        waiting = [asyncio.ensure_future(take(3)) for _ in range(3)]
        await asyncio.sleep(0.01)
        await first.aclose()
        await asyncio.sleep(0.01)
        leaver = asyncio.ensure_future(take(2))
        await asyncio.sleep(0.01)
        leaver.cancel()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [3, 3, 3]
    assert await asyncio.wait_for(take(3), 5) == 3


async def test_a_closed_sequence_refuses(connect: Connect, server: CompletionServer) -> None:
    async with connect().open(2) as (one, other):
        one.close()
        one.close()
        with pytest.raises(EngineError, match="closed"):
            await one.generate(Generate([5], 1))
        assert len((await other.generate(Generate([5], 1))).ids) == 1
    assert len(server.received) == 1


async def test_preloading_is_the_servers_own_business(connect: Connect, server: CompletionServer) -> None:
    await connect().preload([1, 2, 3])
    assert server.received == []


async def test_description(connect: Connect) -> None:
    assert connect().describe() == {
        "engine": "openai",
        "weights": "d" * 64,
        "model": MODEL,
        "max_context": MODEL_CONTEXT,
    }
