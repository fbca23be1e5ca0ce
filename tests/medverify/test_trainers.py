"""The functions that trainers import, over real sockets: a number where something was judged, and only there."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from math import isnan
from typing import Any

import pytest
import torch
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from live_server import listening
from small_service import service_app

from medverify.errors import NotJudgedError
from medverify.replies import COMPONENTS
from medverify.trainers import gym, trl, verl
from medverify.trainers.samples import ColumnError
from medverify.trainers.verl_advantage import judged_advantage

QUESTION = "What does warfarin inhibit?"
COMPLETIONS = ["p = 0.9. The answer is A.", "p = 0.2. The answer is B.", "trouble", "x" * 200_001]
ALONE = {"accuracy": 1.0}  # weights: the reward is what the verifier believes
COLUMNS: dict[str, Any] = {
    "prompts": [QUESTION] * 4,
    "completions": COMPLETIONS,
    "completion_ids": [[1]] * 4,
    "options": [{"A": "VKOR", "B": "thrombin"}] * 4,
    "answer": ["A"] * 4,
    "trainer_state": object(),
}


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes a reward function for an address that it is told by the environment, and closes it."""
    opened = list[trl.RewardFunction]()

    def function(url: str, make: Callable[..., trl.RewardFunction] = trl.RewardFunction, **options: Any) -> Any:
        monkeypatch.setenv("MEDVERIFY_URL", url)
        opened.append(make(**options))
        return opened[-1]

    yield function
    for made in opened:
        made.close()


async def stopped() -> str:
    """The address of a service that is no more."""
    async with listening(service_app()) as url:
        return url


# ---- TRL -------------------------------------------------------------------------------------------------------------


async def test_trl_gets_none_for_what_was_not_judged(functions: Any) -> None:
    logged = dict[str, Any]()
    columns = COLUMNS | {"log_metric": logged.__setitem__, "log_extra": logged.__setitem__}
    async with listening(service_app()) as url:
        rewards = await asyncio.to_thread(functions(url, weights=ALONE), **columns)
    assert rewards == [pytest.approx(0.9), pytest.approx(0.2), None, None]
    assert logged == {
        "medverify/not_judged": 0.5,
        "medverify_status": ["scored", "scored", "engine_failed", "nothing_to_judge"],
    }


async def test_trl_asynchronously(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(service_app()) as url:
        function = trl.AsyncRewardFunction(url, component="label_match", label_column="gold")
        rewards = await function(**COLUMNS, gold=["A"] * 4)
        assert rewards == [1.0, 0.0, None, None]
        await function.aclose()
        monkeypatch.setenv("MEDVERIFY_URL", url)
        trl._usual_async.cache_clear()
        right, wrong, *missing = await trl.async_reward_func(**COLUMNS)
        assert right > 0.5 > wrong
        assert missing == [None, None]
        await trl._usual_async().aclose()


async def test_trl_with_the_plain_function(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(service_app()) as url:
        monkeypatch.setenv("MEDVERIFY_URL", url)
        trl._usual.cache_clear()
        right, wrong, *missing = await asyncio.to_thread(trl.reward_func, **COLUMNS)
        assert right > 0.5 > wrong
        assert missing == [None, None]
        await asyncio.to_thread(trl._usual().close)


async def test_conversations(functions: Any) -> None:
    completion = [
        {"role": "assistant", "content": "p = 0.9"},
        {"role": "tool", "content": "trouble p = 0.1"},
        {"role": "assistant", "content": "So A."},
    ]
    prompt = [{"role": "system", "content": "trouble"}, {"role": "user", "content": QUESTION}]
    async with listening(service_app()) as url:
        rewards = await asyncio.to_thread(functions(url, weights=ALONE), prompts=[prompt], completions=[completion])
    assert rewards == [pytest.approx(0.9)]  # neither the system's nor the tool's text was judged


@pytest.mark.parametrize("status", [401, 500, 422, None])
async def test_no_trouble_of_the_judge_is_an_error_or_a_number(
    functions: Any, caplog: pytest.LogCaptureFixture, status: int | None
) -> None:
    app = FastAPI()

    @app.post("/reward")
    async def reward() -> Any:
        return JSONResponse({"detail": "no"}, status) if status else {"rewards": [{"id": "0", "reward": 0}]}

    async with listening(app) as url:
        function = functions(url)
        assert await asyncio.to_thread(function, **COLUMNS) == [None] * 4
    assert ("ERROR" in caplog.text) == (status == 401)
    assert "4 of 4 completions have no reward" in caplog.text
    assert await asyncio.to_thread(function, **COLUMNS) == [None] * 4  # the service has stopped


async def test_a_data_set_that_does_not_fit_is_told_at_once(functions: Any) -> None:
    function = functions("http://127.0.0.1:9")
    with pytest.raises(ColumnError, match="options"):
        await asyncio.to_thread(function, prompts=["q"], completions=["t"], options=["A) yes"])
    with pytest.raises(ColumnError, match="label"):
        await asyncio.to_thread(function, prompts=["q"], completions=["t"], answer=[2])


def test_without_a_url_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDVERIFY_URL", raising=False)
    with pytest.raises(ValueError, match="MEDVERIFY_URL"):
        trl.RewardFunction()


async def test_a_policy_that_writes_nothing_gets_nothing(functions: Any) -> None:
    async with listening(service_app()) as url:
        columns = {"prompts": ["q"] * 3, "completions": ["", [{"role": "tool", "content": "t"}], "p = 0.9"]}
        for function in (functions(url, weights=ALONE), functions(url, gym.coherence_reward)):
            assert await asyncio.to_thread(function, **columns) == [0.0, 0.0, pytest.approx(0.9)]


# ---- verl ------------------------------------------------------------------------------------------------------------

KEYS = {"score", "acc", "judged", *COMPONENTS}


async def score(url: str, solution: str, **options: Any) -> dict[str, float]:
    info = {"question": QUESTION, "options": {"A": "VKOR", "B": "thrombin"}, "index": 3}
    return await verl.compute_score("medqa", solution, "A", info, url=url, weights=ALONE, **options)


async def test_verl_gets_the_same_keys_for_every_sample() -> None:
    async with listening(service_app()) as url:
        right, wrong, lost, long = [await score(url, text, num_turns=2) for text in COMPLETIONS]
        assert all(set(found) == KEYS for found in (right, wrong, lost, long))
        assert all(type(value) is float for found in (right, lost) for value in found.values())
        assert (right["score"], right["acc"], right["judged"]) == (pytest.approx(0.9), 1.0, 1.0)
        assert (wrong["score"], wrong["acc"]) == (pytest.approx(0.2), 0.0)
        for found in (lost, long):
            assert isnan(found["score"])
            assert isnan(found["acc"])
            assert found["judged"] == 0.0
        with pytest.raises(NotJudgedError, match=r"engine_failed: .*the judge's engine failed"):
            await score(url, "trouble", not_judged="raise")
        await verl._client(url, None).aclose()
    assert isnan((await score(url, "p = 0.9", deadline_s=5.0))["score"])
    await verl._client(url, None).aclose()


async def test_verl_without_awaiting() -> None:
    async with listening(service_app()) as url:

        def call() -> dict[str, float]:
            info = {"question": QUESTION}
            found = verl.compute_score_blocking("s", "p = 0.9", "A", extra_info=info, url=url, weights=ALONE)
            verl._thread().run(verl._client(url, None).aclose())
            verl._thread().close()
            return found

        verl._client.cache_clear()
        assert (await asyncio.to_thread(call))["score"] == pytest.approx(0.9)


async def test_what_verl_was_set_up_wrongly_for_is_told() -> None:
    for info in (None, {}, {"question": " "}):
        with pytest.raises(ColumnError, match="extra_info has no `question`"):
            await verl.compute_score("s", "t", "A", info, url="http://127.0.0.1:9")
    with pytest.raises(ValueError, match="nan or raise"):
        await score("http://127.0.0.1:9", "t", not_judged="zero")


def test_the_advantage_leaves_out_what_was_not_judged() -> None:
    nan = float("nan")
    rewards = torch.tensor([[0, 1.0], [0, 0.0], [0, nan], [0, 1.0], [nan, 0], [0, 0.7], [0, 0.3]])
    mask = torch.tensor([[1, 1.0]] * 6 + [[1.0, 0]])
    index = ["a", "a", "a", "b", "b", "c", "c"]
    plain, returns = judged_advantage(rewards, mask, index, {"norm_adv_by_std_in_grpo": False})
    assert plain is returns
    expected = [[0.5, 0.5], [-0.5, -0.5], [0, 0], [0, 0], [0, 0], [0.2, 0.2], [-0.2, 0]]
    assert torch.allclose(plain, torch.tensor(expected), atol=1e-6)
    divided, _ = judged_advantage(rewards, mask, index, None)
    assert torch.allclose(divided[:2], torch.tensor([[0.7071, 0.7071], [-0.7071, -0.7071]]), atol=1e-4)
    assert not divided.isnan().any()


# ---- the gym ---------------------------------------------------------------------------------------------------------


async def test_the_gyms_registry(functions: Any) -> None:
    async with listening(service_app()) as url:
        registry = gym.register({"format": lambda completions, **_: [1.0] * len(completions)}, url)
        assert set(registry) == {"format", "medverify", "medverify_accuracy", "medverify_coherence"}
        columns = {name: COLUMNS[name] for name in ("prompts", "completions")} | {"solution": ["A"] * 4}
        found = {name: await asyncio.to_thread(registry[name], **columns) for name in registry}
        five = {"accuracy": registry["medverify_accuracy"], "coherence": registry["medverify_coherence"]}
        whole = gym.composite_reward(five | {"format": registry["format"]})
        total = await asyncio.to_thread(whole, **columns)
        for name in ("medverify", "medverify_accuracy", "medverify_coherence"):
            function = registry[name]
            assert isinstance(function, trl.RewardFunction)
            await asyncio.to_thread(function.close)
    assert found["medverify_accuracy"] == [pytest.approx(0.9), pytest.approx(0.2), None, None]
    first, second, *missing = found["medverify_coherence"]
    assert missing == [None, None]
    expected = [0.25 * 0.9 + 0.1 * first + 0.1, 0.25 * 0.2 + 0.1 * second + 0.1]
    assert total == [*map(pytest.approx, expected), None, None]
    with pytest.raises(ValueError, match="no weight for style"):
        gym.composite_reward({"style": registry["format"]})


TRAJECTORY: dict[str, Any] = {
    "domain": "medical_qa",
    "task_id": "qa_7",
    "total_turns": 2,
    "tool_call_log": [],
    "conversation_history": [
        {"turn": 1, "agent_action": '{"name": "search", "arguments": {}}', "observation": "Warfarin blocks VKOR."},
        {"turn": 2, "agent_action": "p = 0.9. The answer is A.", "observation": ""},
    ],
    "final_reward": 1.0,
}


def test_a_trajectory_becomes_a_case() -> None:
    case = gym.trajectory_case(TRAJECTORY, QUESTION, options={"A": "VKOR"})
    assert (case.id, case.question.text, case.question.options) == ("qa_7", QUESTION, {"A": "VKOR"})
    action, seen, answer = case.trace.steps or []
    assert action.startswith('{"name": "search"')
    assert seen == "[result of the tool, not written by the policy] Warfarin blocks VKOR."
    assert answer.startswith("p = 0.9")
    alone = gym.trajectory_case(TRAJECTORY, QUESTION, tools=False)
    assert alone.trace.steps == [action, answer]
    item = gym.trajectory_item(TRAJECTORY, QUESTION, label="A")
    assert (item.id, item.label, item.trace) == ("qa_7", "A", [action, seen, answer])
    with pytest.raises(ColumnError, match="no action"):
        gym.trajectory_case({"conversation_history": []}, QUESTION)


def test_a_trajectorys_actions_may_be_objects() -> None:
    turns = [{"agent_action": {"name": "f"}, "observation": None}, {"agent_action": None, "observation": "unseen"}]
    assert gym.trajectory_steps({"conversation_history": turns}) == ['{"name": "f"}']


def test_logs_hold_no_traces(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "medverify")
    function = trl.RewardFunction("http://127.0.0.1:9", deadline_s=1.0)
    assert function(prompts=["q"], completions=["a secret history"]) == [None]
    function.close()
    assert "secret" not in caplog.text
