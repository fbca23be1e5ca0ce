import math
from typing import Any

import pytest
from verl_fakes import END, Bytes, FakeClient, FakeRetriever, example, judge_over, outage

from curriculum.verl_recipe.engine import Backend, ServerEngine
from verifier.engines.base import Completion, ContextFullError, EngineError, Finish, Generate
from verifier.judge import Outcome
from verifier.reward import Reward, reward
from verifier.transcript import Author
from verifier.types import StopReason

SEARCH = "<think>what of metformin</think><search>metformin</search>"
ANSWER = "<think>it is first-line</think><answer>1</answer>"


def engine(client: FakeClient, backend: Backend = "vllm", max_context: int = 100_000) -> ServerEngine:
    return ServerEngine(client, Bytes(), backend, max_context, {"top_k": -1})  # type: ignore[arg-type]


async def complete(client: FakeClient, *, max_context: int = 100_000, **request: Any) -> Completion:
    asked = Generate(**{"ids": [1, 2, 3], "max_tokens": 50, "stop": ("</answer>",), **request})
    return await engine(client, max_context=max_context).complete("r", asked)


async def episode(
    client: FakeClient, retriever: FakeRetriever | None = None, **settings: Any
) -> tuple[Outcome, ServerEngine]:
    running = engine(client)
    judge = judge_over(running, retriever, **settings)
    async with running.open() as (sequence,):
        return await judge.run(example(1, 1).case, sequence), running


async def test_an_episode_has_a_reward_without_the_labels_probabilities() -> None:
    """verl's servers do not tell them: there is no confidence and so no judgment, but the verdict was read."""
    outcome, running = await episode(FakeClient([SEARCH, ANSWER]))
    assert outcome.judgment.p_correct is None
    assert outcome.judgment.stop_reason is StopReason.ANSWERED
    assert reward(outcome.read, 1, outcome.judgment.stop_reason) == Reward(1.0, 1.0)
    assert reward(outcome.read, 0, outcome.judgment.stop_reason) == Reward(0.0, 1.0)
    assert len(outcome.judgment.searches) == 1
    assert [segment.author for segment in outcome.transcript.segments] == [
        Author.PROMPT,
        Author.POLICY,
        Author.EVIDENCE,
        Author.POLICY,
    ]
    assert running.spent.versions == [3, 3]


async def test_every_turn_continues_the_ids_of_the_one_before_on_the_same_server() -> None:
    client = FakeClient([SEARCH, ANSWER])
    outcome, _ = await episode(client)
    first, second = client.asked
    assert first["request_id"] == second["request_id"]
    assert second["prompt_ids"] == outcome.transcript.ids[: len(second["prompt_ids"])]
    assert second["prompt_ids"][: len(first["prompt_ids"])] == first["prompt_ids"]
    assert outcome.transcript.ids == second["prompt_ids"] + list(ANSWER.encode())


@pytest.mark.parametrize(("backend", "keep"), [("vllm", "include_stop_str_in_output"), ("sglang", "no_stop_trim")])
async def test_what_the_servers_are_asked(backend: Backend, keep: str) -> None:
    client = FakeClient([ANSWER])
    await engine(client, backend).complete("r", Generate([1], 50, ("</answer>",), temperature=1.0, top_p=0.95))
    assert client.asked == [
        {
            "request_id": "r",
            "prompt_ids": [1],
            "top_k": -1,
            "temperature": 1.0,
            "top_p": 0.95,
            "max_tokens": 50,
            "logprobs": True,
            "stop": ["</answer>"],
            keep: True,
            "stop_token_ids": [END],
        }
    ]


async def test_the_end_of_a_generation_is_read_from_its_ids() -> None:
    assert (await complete(FakeClient([ANSWER]))).finish is Finish.STOP
    silent = await complete(FakeClient(["well"]))
    assert (silent.finish, silent.ids[-1]) == (Finish.END, END)
    assert (await complete(FakeClient(["long enough"]), max_tokens=4)).finish is Finish.LENGTH
    assert (await complete(FakeClient(["long enough"]), max_context=7)).finish is Finish.CONTEXT
    # Ended by a token that only the server knows as an end of text.
    assert (await complete(FakeClient([""], {"token_ids": [9], "log_probs": [-1.0]}))).finish is Finish.END


async def test_what_a_server_writes_behind_a_stop_string_is_cut_off() -> None:
    text = ANSWER + " and more"
    served = {"token_ids": list(text.encode()), "log_probs": [-0.5] * len(text)}
    found = await complete(FakeClient([""], served), max_tokens=500)
    assert bytes(found.ids).decode() == ANSWER
    assert found.logprobs == (-0.5,) * len(ANSWER)
    assert found.finish is Finish.STOP


async def test_watched_tokens_are_unknown_and_not_improbable() -> None:
    found = await complete(FakeClient(["ab"]), watch=(4, 5))
    assert found.watched == ((-math.inf, -math.inf),) * 3


@pytest.mark.parametrize(
    "told",
    [
        {"stop_reason": "aborted"},
        {"stop_reason": "abort"},
        {"token_ids": [], "log_probs": []},
        {"log_probs": None},
        {"log_probs": [-1.0]},
        {"token_ids": [1], "log_probs": [math.nan]},
    ],
)
async def test_what_is_no_generation_is_an_error(told: dict[str, Any]) -> None:
    with pytest.raises(EngineError):
        await complete(FakeClient(["some text"], told))


async def test_no_room_is_said_before_the_server_is_asked() -> None:
    client = FakeClient(["some text"])
    with pytest.raises(ContextFullError):
        await complete(client, max_context=3)
    assert not client.asked


async def test_failures_outside_the_policy_have_no_reward() -> None:
    lost, _ = await episode(FakeClient([SEARCH, RuntimeError("the actor died")]))
    assert lost.judgment.stop_reason is StopReason.ENGINE_ERROR
    assert "the actor died" in lost.judgment.detail
    away, _ = await episode(FakeClient([SEARCH, ANSWER]), outage())
    assert away.judgment.stop_reason is StopReason.RETRIEVAL_ERROR
    for outcome in (lost, away):
        assert reward(outcome.read, 1, outcome.judgment.stop_reason) is None


async def test_an_end_without_a_word_is_kept_for_who_needs_a_token() -> None:
    outcome, running = await episode(FakeClient([""]))
    assert outcome.judgment.stop_reason is StopReason.END_OF_TEXT
    assert outcome.transcript.count(Author.POLICY) == 0
    assert running.end is not None
    assert running.end[0] == END
