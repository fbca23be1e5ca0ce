"""The embedded engine, on a model with random weights: its numbers are those of transformers, whoever shares the batch."""

import asyncio
import shutil
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_model import CONTEXT, MODEL_CONTEXT, Reference, config, copy_with, generate, running, save_model, start
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM
from verifier_fakes import CASE, judge

from verifier.engines import base
from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate
from verifier.engines.tokenizer import HFTokenizer
from verifier.engines.transformers import TransformersEngine, shared_length
from verifier.types import Case

TEXTS = [
    "The patient has",
    "x",
    "0 1 é",
    "Metformin is first-line in type 2 diabetes.",
    "a b c " * 20,
    "K+ <3.5",
    "the answer",
    "fever " * 40,
    "?",
]


def prompts(engine: TransformersEngine) -> list[list[int]]:
    return [engine.tokenizer.encode(text) for text in TEXTS]


def assert_same(one: Completion, other: Completion) -> None:
    """The same but for rounding, and for where the prompt's numbers came from."""
    assert one.ids == other.ids
    assert one.finish is other.finish
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    for mine, yours in zip(one.watched, other.watched, strict=True):
        assert mine == pytest.approx(yours, abs=1e-4)


# ---- the model's numbers ---------------------------------------------------------------------------------------------


async def test_greedy_is_transformers_own_greedy(engine: TransformersEngine, reference: Reference) -> None:
    for ids in prompts(engine):
        completion = await generate(engine, ids, 12)
        assert list(completion.ids) == reference.greedy(ids, 12)
        assert completion.finish is (Finish.END if completion.ids[-1] in (0, 2) else Finish.LENGTH)
        assert (completion.prefilled, completion.cached) == (len(ids), 0)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
async def test_log_probabilities_are_those_of_a_plain_forward_pass(
    engine: TransformersEngine, reference: Reference, temperature: float
) -> None:
    watch = (0, 17, 2, 289)
    for ids in prompts(engine):
        done = await generate(engine, ids, 12, watch=watch, temperature=temperature, seed=1)
        after = slice(len(ids) - 1, len(ids) - 1 + len(done.ids))
        tempered = reference.logprobs([*ids, *done.ids], temperature or 1.0)[after]
        plain = reference.logprobs([*ids, *done.ids])[after]
        assert done.logprobs == pytest.approx(tempered[range(len(done.ids)), list(done.ids)].tolist(), abs=1e-4)
        assert len(done.watched) == len(done.ids)
        for watched, expected in zip(done.watched, plain[:, list(watch)].tolist(), strict=True):
            assert watched == pytest.approx(expected, abs=1e-4)


async def test_nothing_is_watched_unasked(engine: TransformersEngine) -> None:
    assert (await generate(engine, [5, 6], 3)).watched == ((), (), ())


async def test_many_together_are_as_each_alone(engine: TransformersEngine) -> None:
    """Nine generations share four places; they come and go in the middle of one another."""
    requests = [(ids, 5 + 3 * number) for number, ids in enumerate(prompts(engine))]
    alone = [await generate(engine, ids, length, watch=(16, 17)) for ids, length in requests]
    together = await asyncio.gather(*(generate(engine, ids, length, watch=(16, 17)) for ids, length in requests))
    for one, other in zip(together, alone, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("step_tokens", [16, 17, 40])
async def test_prompts_longer_than_a_step_are_computed_in_parts(
    tiny: Path, reference: Reference, step_tokens: int
) -> None:
    async with running(tiny, step_tokens=step_tokens) as engine:
        done = await asyncio.gather(*(generate(engine, ids, 10) for ids in prompts(engine)))
        assert [list(completion.ids) for completion in done] == [reference.greedy(ids, 10) for ids in prompts(engine)]
        assert [completion.prefilled for completion in done] == [len(ids) for ids in prompts(engine)]


@pytest.mark.parametrize("shape", [{"num_key_value_heads": 4}, {"num_key_value_heads": 1}, {"head_dim": 24}])
async def test_other_shapes_of_attention(tmp_path: Path, shape: dict[str, int]) -> None:
    torch.manual_seed(3)
    path = save_model(tmp_path / "other", LlamaForCausalLM(config(**shape)))
    reference = Reference(path)
    async with running(path) as engine:
        done = await asyncio.gather(*(generate(engine, ids, 10) for ids in prompts(engine)))
        assert [list(completion.ids) for completion in done] == [reference.greedy(ids, 10) for ids in prompts(engine)]


# ---- turns of one sequence -------------------------------------------------------------------------------------------


async def test_a_second_turn_computes_only_what_is_new(engine: TransformersEngine) -> None:
    ids, more = prompts(engine)[3], [40, 41, 42, 43]
    async with engine.open() as (sequence,):
        first = await sequence.generate(Generate(ids, 10))
        whole = [*ids, *first.ids, *more]
        second = await sequence.generate(Generate(whole, 10, watch=(17,)))
        third = await sequence.generate(Generate([*whole, *second.ids], 10))
    assert (first.prefilled, first.cached) == (len(ids), 0)
    assert second.cached == len(ids) + len(first.ids) - 1  # the last token was drawn, but never read
    assert second.prefilled == 1 + len(more)
    assert third.prefilled == 1
    assert_same(second, await generate(engine, whole, 10, watch=(17,)))
    assert_same(third, await generate(engine, [*whole, *second.ids], 10))


async def test_the_same_question_twice_has_the_same_answer(engine: TransformersEngine) -> None:
    ids = prompts(engine)[3]
    async with engine.open() as (sequence,):
        first, again = [await sequence.generate(Generate(ids, 10)) for _ in range(2)]
    assert_same(first, again)
    assert (again.prefilled, again.cached) == (1, len(ids) - 1)


@pytest.mark.parametrize("kept", [0, 1, 30])
async def test_another_continuation_rolls_back(engine: TransformersEngine, kept: int) -> None:
    """As in asking for the likelihood of one tag and then of another."""
    ids = prompts(engine)[4]
    other = [*ids[:kept], 77, 78, 79]
    async with engine.open() as (sequence,):
        await sequence.generate(Generate(ids, 20))
        back = await sequence.generate(Generate(other, 20))
        shorter = await sequence.generate(Generate(other[: kept + 1], 20))
    assert (back.prefilled, back.cached) == (3, kept)
    assert_same(back, await generate(engine, other, 20))
    assert_same(shorter, await generate(engine, other[: kept + 1], 20))


async def test_a_preloaded_beginning_is_copied(tiny: Path) -> None:
    async with running(tiny) as engine:
        await check_preloading(engine)


async def check_preloading(engine: TransformersEngine) -> None:
    ids = prompts(engine)[4]
    plain = await generate(engine, ids, 20)
    await engine.preload(ids[:10])
    await engine.preload(ids[:50])
    await engine.preload(ids[:50])
    copied = await generate(engine, ids, 20)
    assert (copied.cached, copied.prefilled) == (50, len(ids) - 50)
    assert_same(copied, plain)
    both = await asyncio.gather(generate(engine, ids, 20), generate(engine, [*ids[:12], 99], 20))
    assert [completion.cached for completion in both] == [50, 0]  # ten tokens are not worth a copy
    assert_same(both[0], plain)
    whole = await generate(engine, ids[:50], 20)
    assert (whole.cached, whole.prefilled) == (49, 1)
    unlike = await generate(engine, [9, *ids], 20)
    assert unlike.cached == 0


@pytest.mark.parametrize("step_tokens", [16, 1024])
async def test_what_sequences_share_is_computed_once(tiny: Path, step_tokens: int) -> None:
    async with running(tiny, step_tokens=step_tokens) as engine:
        question = prompts(engine)[4]
        asked = [[*question, 5, 6, tail] for tail in (7, 8, 9)]
        alone = [await generate(engine, ids, 10) for ids in asked]

        async def ask(sequence: base.Sequence, ids: list[int]) -> Completion:
            try:
                return await sequence.generate(Generate(ids, 10))
            finally:
                sequence.close()  # the others of its gang would wait for what it asks next

        async with engine.open(3) as sequences:
            together = await asyncio.gather(*map(ask, sequences, asked))
    assert [completion.cached + completion.prefilled for completion in together] == [len(question) + 3] * 3
    assert together[0].cached == 0
    for follower in together[1:]:  # a remainder that is not worth waiting for is computed again
        assert len(question) + 2 - 32 < follower.cached <= len(question) + 2
    for one, other in zip(together, alone, strict=True):
        assert_same(one, other)


async def test_whoever_waited_for_a_leader_that_left_computes_by_itself(tiny: Path) -> None:
    async with running(tiny, step_tokens=16) as engine:
        question = prompts(engine)[7]
        expected = await generate(engine, question, 5)
        async with engine.open(2) as (leader, follower):
            leading = asyncio.ensure_future(leader.generate(Generate(question, 5)))
            following = asyncio.ensure_future(follower.generate(Generate(question, 5)))
            await asyncio.sleep(0.005)
            leading.cancel()
            leader.close()
            assert_same(await following, expected)


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
def test_shared_length_is_that_of_the_common_prefix(first: list[int], second: list[int]) -> None:
    expected = 0
    while expected < min(len(first), len(second)) and first[expected] == second[expected]:
        expected += 1
    assert shared_length(first, second) == expected
    assert shared_length([*first, *second], first) == len(first)


async def test_one_generation_at_a_time(engine: TransformersEngine) -> None:
    async with engine.open() as (sequence,):
        first = asyncio.ensure_future(sequence.generate(Generate([5, 6], 100)))
        await asyncio.sleep(0)
        with pytest.raises(EngineError, match="one generation at a time"):
            await sequence.generate(Generate([5, 6], 1))
        assert len((await first).ids) > 1
    with pytest.raises(EngineError, match="closed"):
        await sequence.generate(Generate([5, 6], 1))


@pytest.mark.parametrize("request_", [Generate([], 1), Generate([5], 0)])
async def test_requests_for_nothing_are_refused(engine: TransformersEngine, request_: Generate) -> None:
    async with engine.open() as (sequence,):
        with pytest.raises(EngineError, match="at least one"):
            await sequence.generate(request_)


# ---- where a generation ends -----------------------------------------------------------------------------------------


def readable(engine: TransformersEngine, ids: Sequence[int], tokens: int, characters: int) -> int:
    """Where the ids spell, in so many tokens, some plain text that was not there before."""
    text = engine.tokenizer.decode
    for at in range(2, len(ids) - tokens):
        piece = text(ids[at : at + tokens])
        if len(piece) >= characters and piece.isascii() and piece not in text(ids[: at + tokens - 1]):
            return at
    raise AssertionError("nothing readable in there")


async def test_a_stop_string_ends_it_right_there(engine: TransformersEngine) -> None:
    for ids in prompts(engine)[:2]:
        free = (await generate(engine, ids, 40)).ids
        at = readable(engine, free, tokens=2, characters=2)
        stop = engine.tokenizer.decode(free[at : at + 2])
        done = await generate(engine, ids, 40, stop=("never written", stop))
        assert (done.ids, done.finish) == (free[: at + 2], Finish.STOP)


async def test_a_stop_string_may_end_inside_a_token(engine: TransformersEngine) -> None:
    ids = engine.tokenizer.encode(TEXTS[0])
    free = (await generate(engine, ids, 40)).ids
    at = readable(engine, free, tokens=1, characters=3)
    stop = engine.tokenizer.decode(free[at : at + 1])[:-1]
    done = await generate(engine, ids, 40, stop=(stop,))
    assert done.finish is Finish.STOP
    text = engine.tokenizer.decode(done.ids)
    assert stop in text
    assert not text.endswith(stop)
    assert stop not in engine.tokenizer.decode(done.ids[:-1])


async def test_a_stop_string_in_the_prompt_is_none(engine: TransformersEngine) -> None:
    ids = engine.tokenizer.encode("</answer></answe")
    assert (await generate(engine, ids, 5, stop=("</answer>",))).finish is Finish.LENGTH


async def test_the_end_of_text_is_included(engine: TransformersEngine) -> None:
    for seed in (5, 9, 11):
        completion = await generate(engine, [5, 6], 60, temperature=5.0, seed=seed)
        assert completion.finish is Finish.END
        assert completion.ids[-1] in engine.tokenizer.end_ids
        assert not engine.tokenizer.end_ids & set(completion.ids[:-1])


async def test_the_context_is_never_overfilled(tiny: Path) -> None:
    async with running(tiny, max_context=256) as engine:
        full = await generate(engine, [5, 6] * 125, 50)
        assert (len(full.ids), full.finish) == (6, Finish.CONTEXT)
        assert (await generate(engine, [5, 6] * 125, 6)).finish is Finish.LENGTH
        assert len((await generate(engine, [5] * 255, 50)).ids) == 1
        for length in (256, 257, 5000):
            with pytest.raises(ContextFullError, match="no room"):
                await generate(engine, [5] * length, 1)


async def test_the_model_bounds_the_context(tiny: Path) -> None:
    async with running(tiny, max_context=100_000) as engine:
        assert engine.max_context == MODEL_CONTEXT


# ---- sampling --------------------------------------------------------------------------------------------------------


async def test_a_seed_gives_the_same_tokens_whatever_the_neighbours(engine: TransformersEngine) -> None:
    ids = prompts(engine)
    how: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95}
    alone = [await generate(engine, ids[number], 15, seed=7, **how) for number in range(4)]
    together = await asyncio.gather(
        *(generate(engine, ids[number], 15, seed=7, **how) for number in (0, 1, 2, 3)),
        *(generate(engine, other, 20, seed=8, **how) for other in ids),
    )
    for one, other in zip(together, alone, strict=False):
        assert_same(one, other)


async def test_other_seeds_and_other_turns_draw_other_numbers(engine: TransformersEngine) -> None:
    drawn = {(await generate(engine, [5, 6], 10, temperature=3.0, seed=seed)).ids for seed in range(8)}
    assert len(drawn) == 8
    again = {(await generate(engine, [5, 6], 10, temperature=3.0, seed=seed)).ids for seed in range(8)}
    assert drawn == again
    first = await generate(engine, [5, 6], 10, temperature=5.0)
    second = await generate(engine, [5, 6, 7], 10, temperature=5.0)
    assert first.ids != second.ids


async def test_a_tiny_nucleus_is_greedy(engine: TransformersEngine) -> None:
    for ids in prompts(engine)[:3]:
        sampled = await generate(engine, ids, 10, temperature=1.0, top_p=1e-6, seed=3)
        assert sampled.ids == (await generate(engine, ids, 10)).ids


# ---- sequences opened together ---------------------------------------------------------------------------------------


async def episode(sequence: base.Sequence, ids: list[int], lengths: Sequence[int]) -> list[Completion]:
    """Some turns, with a pause after each as a search would make it."""
    done: list[Completion] = []
    try:
        for length in lengths:
            done.append(await sequence.generate(Generate(ids, length, watch=(16, 17), temperature=0.8, seed=2)))
            ids = [*ids, *done[-1].ids, 40]
            await asyncio.sleep(0.001 * length)
    finally:
        sequence.close()
    return done


async def test_a_gang_gives_the_same_bits_each_time(tiny: Path) -> None:
    lengths = [(3, 20, 5), (17,), (1, 1, 1, 30), (25, 2)]
    runs = []
    for _ in range(3):
        async with running(tiny, step_tokens=64) as engine, engine.open(4) as sequences:
            runs.append(await asyncio.gather(*map(episode, sequences, prompts(engine), lengths)))
    assert runs[0] == runs[1] == runs[2]


async def test_a_gang_waits_for_the_slowest_to_ask(engine: TransformersEngine) -> None:
    """Whether its caller is quick or slow to notice that a generation is over must not change who is computed with whom."""
    async with engine.open(2) as (quick, slow):
        long = asyncio.ensure_future(slow.generate(Generate([5, 6], 60)))
        short = asyncio.ensure_future(quick.generate(Generate([5, 7], 1)))
        await asyncio.sleep(0)
        block(0.3)  # the loop is busy elsewhere; the engine's thread is not
        await short
        await asyncio.sleep(0.05)
        assert not long.done()
        quick.close()
        assert len((await long).ids) > 1


def block(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_gang_member_that_leaves_holds_nobody_up(engine: TransformersEngine) -> None:
    async with engine.open(3) as (leaver, cancelled, stayer):
        leaver.close()
        task = asyncio.ensure_future(cancelled.generate(Generate([5, 6], 400)))
        done = asyncio.ensure_future(stayer.generate(Generate([5, 6], 10)))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.close()
        assert len((await asyncio.wait_for(done, 10)).ids) == 10


# ---- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, -1, 5, 100])
async def test_no_more_places_than_there_are(engine: TransformersEngine, count: int) -> None:
    with pytest.raises(EngineError, match="max_sequences"):
        async with engine.open(count):
            pass


async def test_waiting_is_first_come_first_served(engine: TransformersEngine) -> None:
    """A large party is not overtaken by small ones for which there would be room."""
    order: list[str] = []

    async def come(name: str, count: int) -> None:
        async with engine.open(count) as places:
            order.append(name)
            assert len({id(place) for place in places}) == count
            await asyncio.sleep(0.01)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine.open(2))
        waiting = []
        for name, count in [("large", 4), ("small", 1), ("medium", 3), ("last", 1)]:
            waiting.append(asyncio.ensure_future(come(name, count)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert order == []
    await asyncio.gather(*waiting)
    assert order == ["large", "small", "medium", "last"]


async def test_who_leaves_the_queue_holds_nobody_up(engine: TransformersEngine) -> None:
    async def come(count: int) -> int:
        async with engine.open(count) as places:
            return len(places)

    async with engine.open(1):
        large = asyncio.ensure_future(come(4))
        await asyncio.sleep(0.01)
        small = asyncio.ensure_future(come(2))
        await asyncio.sleep(0.01)
        assert not small.done()
        large.cancel()
        with pytest.raises(asyncio.CancelledError):
            await large
    assert await asyncio.wait_for(small, 5) == 2
    assert await asyncio.wait_for(come(4), 5) == 4


async def test_a_caller_who_leaves_frees_its_place(tiny: Path, reference: Reference) -> None:
    async with running(tiny, max_sequences=1) as engine:
        for pause in (0.0, 0.001, 0.01, 0.05):
            task = asyncio.ensure_future(generate(engine, [5, 6], 450))
            await asyncio.sleep(pause)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        done = await asyncio.wait_for(generate(engine, [5, 9], 10), 10)
        assert list(done.ids) == reference.greedy([5, 9], 10)


async def test_a_sequence_whose_generation_was_given_up_goes_on(engine: TransformersEngine) -> None:
    async with engine.open() as (sequence,):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sequence.generate(Generate([5, 6], 450)), 0.02)
        again = await sequence.generate(Generate([5, 9, 10], 10))
    assert_same(again, await generate(engine, [5, 9, 10], 10))


def test_several_event_loops_use_one_engine(tiny: Path, reference: Reference) -> None:
    engine = start(tiny)
    expected = reference.greedy([5, 6, 7], 12)
    for _ in range(3):
        assert list(asyncio.run(generate(engine, [5, 6, 7], 12)).ids) == expected
    done: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: done.append(list(asyncio.run(generate(engine, [5, 6, 7], 12)).ids)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [expected] * 8
    asyncio.run(engine.aclose())


# ---- a judge on it ---------------------------------------------------------------------------------------------------


async def test_a_judge_gives_the_same_numbers_each_time(tiny: Path) -> None:
    cases = [
        CASE,
        Case(id="c2", question="Is it?", trace=["a", "b"]),
        Case(id="c3", question="K+ <3.5?", trace="<answer>1</answer>"),
    ]
    how: dict[str, Any] = {
        "mode": "guided",
        "sampling": {"temperature": 0.8},
        "guided": {"think_tokens": 8, "query_tokens": 4},
    }
    runs = []
    for _ in range(2):
        async with running(tiny, max_context=MODEL_CONTEXT) as engine:
            one = judge(engine, **how)
            await one.warm_up()
            runs.append([judgment.without_clock() for judgment in await one.verify_together(cases)])
            alone = [await one.verify(case) for case in cases]
    assert runs[0] == runs[1]
    for together, single in zip(runs[0], alone, strict=True):
        assert (together.verdict, together.reasoning) == (single.verdict, single.reasoning)
        assert together.p_correct == pytest.approx(single.p_correct, abs=1e-4)
        assert together.usage.cached_tokens == single.usage.cached_tokens > 0


# ---- trouble ---------------------------------------------------------------------------------------------------------


async def test_a_closed_engine_answers_everybody(tiny: Path) -> None:
    engine = start(tiny, max_sequences=1)
    async with engine.open() as (sequence,):
        working = asyncio.ensure_future(sequence.generate(Generate([5, 6], 450)))
        waiting = asyncio.ensure_future(generate(engine, [5, 6]))
        await asyncio.sleep(0.01)
        await engine.aclose()
        for task in (working, waiting):
            with pytest.raises(EngineError, match="closed"):
                await task
        with pytest.raises(EngineError, match="closed"):
            await sequence.generate(Generate([5, 6], 1))
    with pytest.raises(EngineError, match="closed"):
        await generate(engine, [5, 6])
    with pytest.raises(EngineError, match="closed"):
        await engine.preload([5, 6])
    await engine.aclose()


async def test_closing_leaves_no_thread(tiny: Path) -> None:
    def owners() -> int:
        return [thread.name for thread in threading.enumerate()].count("medverify-engine")

    before = owners()
    async with running(tiny):
        assert owners() == before + 1
    assert owners() == before


@pytest.fixture
async def poisoned(tiny: Path, tmp_path: Path) -> AsyncIterator[TransformersEngine]:
    """Whoever mentions a `Z` makes the model give NaN."""
    rows = HFTokenizer(tiny).encode("Z")
    async with running(copy_with(tiny, tmp_path / "poisoned", "model.embed_tokens.weight", rows)) as engine:
        yield engine


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_weights_that_are_not_numbers_are_an_error_and_the_engine_lives_on(
    tiny: Path, tmp_path: Path, temperature: float
) -> None:
    async with running(copy_with(tiny, tmp_path / "nan", "lm_head.weight", slice(None))) as engine:
        for _ in range(3):
            with pytest.raises(EngineError, match="not numbers"):
                await generate(engine, [5, 6], temperature=temperature)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_one_sequence_without_numbers_does_not_take_its_neighbours_with_it(
    poisoned: TransformersEngine, engine: TransformersEngine, temperature: float
) -> None:
    ids, bad = prompts(engine)[3], engine.tokenizer.encode("Vitamin Z is")
    how: dict[str, Any] = {"temperature": temperature, "seed": 4}
    async with poisoned.open(2) as (one, other):

        async def fail() -> None:
            try:
                with pytest.raises(EngineError, match="not numbers"):
                    await one.generate(Generate(bad, 20, **how))
            finally:
                one.close()

        _, good = await asyncio.gather(fail(), other.generate(Generate(ids, 20, **how)))
    assert_same(good, await generate(engine, ids, 20, **how))


async def test_a_place_where_there_was_no_number_is_as_good_as_new(
    poisoned: TransformersEngine, engine: TransformersEngine
) -> None:
    """The next sequence in it is short and its neighbour long: nothing of what was left behind may be read."""
    ids, short = prompts(engine)[4], [5, 6]
    with pytest.raises(EngineError):
        await generate(poisoned, engine.tokenizer.encode("Z" * 60))
    async with poisoned.open(2) as sequences:
        done = await asyncio.gather(
            *(sequence.generate(Generate(text, 20)) for sequence, text in zip(sequences, (short, ids), strict=True))
        )
    for completion, text in zip(done, (short, ids), strict=True):
        assert_same(completion, await generate(engine, text, 20))


async def test_a_token_the_model_does_not_have_fails_and_the_engine_lives_on(
    engine: TransformersEngine, reference: Reference
) -> None:
    with pytest.raises(EngineError, match="the model failed"):
        await generate(engine, [5, 100_000])
    assert list((await generate(engine, [5, 6], 10)).ids) == reference.greedy([5, 6], 10)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot load a language model from"):
        start(tmp_path)


def small(kind: Any, **fields: Any) -> Any:
    return kind(
        vocab_size=290, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=CONTEXT, bos_token_id=1, eos_token_id=2, pad_token_id=0, **fields,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["mistral", "qwen2"])
def test_a_sliding_window_is_refused(tmp_path: Path, kind: str) -> None:
    if kind == "mistral":
        model = MistralForCausalLM(small(MistralConfig, sliding_window=16))
    else:
        model = Qwen2ForCausalLM(small(Qwen2Config, use_sliding_window=True, sliding_window=16, max_window_layers=1))
    with pytest.raises(EngineError, match="full attention only"):
        start(save_model(tmp_path / kind, model))


@pytest.mark.parametrize("window", [None, CONTEXT, 4096])
async def test_a_window_that_takes_the_whole_context_is_none(tmp_path: Path, window: int | None) -> None:
    async with running(
        save_model(tmp_path / "m", MistralForCausalLM(small(MistralConfig, sliding_window=window)))
    ) as engine:
        assert len((await generate(engine, [5, 6], 3)).ids) == 3


def test_whatever_the_numbers_depend_on_is_described(engine: TransformersEngine) -> None:
    assert engine.describe() == {
        "engine": "transformers",
        "weights": "d" * 64,
        "dtype": "float32",
        "device": "cpu",
        "max_context": MODEL_CONTEXT,
        "max_sequences": 4,
        "step_tokens": 512,
    }


def test_a_model_that_is_not_whole_is_refused(tiny: Path, tmp_path: Path) -> None:
    """transformers would fill the gap with random numbers, and the judge would judge all the same."""
    folder = tmp_path / "partial"
    shutil.copytree(tiny, folder)
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        EngineError, match=r"not a whole language model: 1 tensors are missing, first model\.norm\.weight"
    ):
        start(folder)


@pytest.mark.parametrize("device", ["gpu", "cpu:x", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(tiny: Path, device: str) -> None:
    with pytest.raises(EngineError, match="device"):
        start(tiny, device=device)


# ---- other weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", [LlamaForCausalLM, Qwen2ForCausalLM])  # without and with biases
async def test_other_weights_give_what_a_model_loaded_with_them_gives(tmp_path: Path, dtype: str, kind: Any) -> None:
    shape = config() if kind is LlamaForCausalLM else Qwen2Config(**{**config().to_dict(), "model_type": "qwen2"})
    torch.manual_seed(5)
    old, new = kind(shape), kind(shape)
    for name, weight in new.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    folders = [save_model(tmp_path / name, model) for name, model in (("old", old), ("new", new))]
    async with running(folders[0], dtype=dtype) as changed, running(folders[1], dtype=dtype) as loaded:
        ids = changed.tokenizer.encode("The patient has a fever.")
        before = await generate(changed, ids, 12)
        await changed.preload(ids)
        changed.load_weights(new.state_dict(), "e" * 64)
        after = await generate(changed, ids, 12)
        assert after == await generate(loaded, ids, 12)
        assert after.cached == 0
        assert after.logprobs != before.logprobs
        assert changed.describe()["weights"] == "e" * 64


async def test_weights_of_another_model_are_refused(engine: TransformersEngine) -> None:
    ids = engine.tokenizer.encode("fever")
    before = await generate(engine, ids, 8)
    weights = LlamaForCausalLM(config()).state_dict()
    with pytest.raises(EngineError, match="weights are missing, first lm_head"):
        engine.load_weights({name: weight for name, weight in weights.items() if name != "lm_head.weight"}, "e")
    with pytest.raises(EngineError, match="another shape"):
        engine.load_weights(LlamaForCausalLM(config(hidden_size=32)).state_dict(), "e")
    async with engine.open():
        with pytest.raises(EngineError, match="1 episodes are under way"):
            engine.load_weights(weights, "e")
    assert await generate(engine, ids, 8) == before
