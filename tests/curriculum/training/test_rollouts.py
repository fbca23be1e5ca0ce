"""Rollouts: what an episode leaves for training, the same each time, and never an outage for a lesson."""

import asyncio
from pathlib import Path

import pytest
from tiny_lessons import PLACES, examples, settings, tiny_model, tiny_prompt
from tiny_model import start
from verifier_fakes import CASE, FakeRetriever, Turns, judge
from verifier_fakes import engine as scripted

from configs.settings import JudgeSettings
from curriculum.pool.example import Example
from curriculum.rollouts import OutageError, roll_out, rollout_seed
from retrieval.passage import UnavailableError
from verifier.engines.base import EngineError
from verifier.judge import Judge
from verifier.types import Case

ASKING = "<think>a</think><search>metformin</search>"
RIGHT = "<think>b</think><answer>1</answer>"


def example(label: int = 1) -> Example:
    return Example(CASE, 1 if label else 0, "q", "test")


async def test_what_an_episode_leaves() -> None:
    ran = judge(scripted(Turns(ASKING, RIGHT), max_sequences=1))
    [[rollout]] = await roll_out(ran, [example()], 1, seed=0)
    prompt, rest = rollout.written.ids[: rollout.written.prompt], rollout.written.ids[rollout.written.prompt :]
    decode = ran.engine.tokenizer.decode
    assert CASE.question.text in decode(prompt)
    assert (
        decode([token for token, policy in zip(rest, rollout.written.policy, strict=True) if policy]) == ASKING + RIGHT
    )
    evidence = decode([token for token, policy in zip(rest, rollout.written.policy, strict=True) if not policy])
    assert evidence.startswith("\n<information>\n[1] Metformin")
    assert len(rollout.sampler) == sum(rollout.written.policy)
    assert rollout.reward is not None
    assert (rollout.reward.total, rollout.tried.correct, rollout.tried.format) == (1.0, True, 1.0)


async def test_against_the_other_label_it_is_wrong_and_without_a_verdict_too() -> None:
    [[wrong]] = await roll_out(judge(scripted(Turns(RIGHT))), [example(0)], 1, seed=0)
    assert wrong.tried.correct is False
    [[mute]] = await roll_out(judge(scripted(Turns("<think>b</think>")), force_verdict=False), [example(1)], 1, seed=0)
    assert mute.tried.correct is False
    assert mute.reward is not None


async def test_a_forced_verdict_is_nobodys() -> None:
    [[forced]] = await roll_out(judge(scripted(Turns("<think>b"))), [example(1)], 1, seed=0)
    assert forced.judgment.forced
    assert forced.tried.correct is False
    assert len(forced.sampler) == sum(forced.written.policy) == len("<think>b")


async def test_what_failed_for_other_reasons_is_not_judged_and_a_wave_of_it_ends_the_run() -> None:
    down = FakeRetriever(error=UnavailableError("the index is away"))
    one_asks = scripted(lambda text: ASKING if "zebra" in text else RIGHT, max_sequences=4)
    cases = [Example(CASE.model_copy(update={"id": str(at)}), 1, "q", "test") for at in range(3)]
    asks = Example(Case(id="asks", question="zebra", trace="t"), 1, "q", "test")
    groups = await roll_out(judge(one_asks, down), [*cases, asks], 1, seed=0)
    assert [group[0].reward is None for group in groups] == [False, False, False, True]
    assert groups[3][0].tried.correct is None
    with pytest.raises(OutageError, match=r"2 of 2 episodes could not be judged \(the index is away\)"):
        await roll_out(judge(scripted(lambda _: ASKING), down), [asks], 2, seed=0)


async def test_a_group_needs_as_many_places() -> None:
    with pytest.raises(EngineError, match="too few for a group of 9"):
        await roll_out(judge(scripted(Turns(RIGHT), max_sequences=8)), [example()], 9, seed=0)


def test_seeds_are_each_rollouts_own() -> None:
    seeds = {rollout_seed(seed, one, number) for seed in (1, 2) for one in examples(4) for number in range(3)}
    assert len(seeds) == 2 * 4 * 3


def test_the_same_examples_give_the_same_tokens_and_others_differ(tmp_path: Path) -> None:
    model, wanted = tiny_model(tmp_path / "tiny"), settings().judge

    def drawn(seed: int, settings: JudgeSettings = wanted) -> list[tuple[int, ...]]:
        engine = start(model, max_sequences=PLACES, max_context=256)
        tried = Judge(engine, FakeRetriever(), tiny_prompt(tmp_path), "free", settings)

        async def run() -> list[tuple[int, ...]]:
            groups = await roll_out(tried, examples(6), 4, seed)
            await tried.aclose()
            return [one.written.ids for group in groups for one in group]

        return asyncio.run(run())

    first = drawn(1)
    assert len(first) == 6 * 4
    assert len(set(first)) == len(first)
    assert drawn(1) == first != drawn(2)
