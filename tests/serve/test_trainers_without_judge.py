"""What trainers with routes of their own make of a judge that fails, is away, or comes back: never a number of ours.

TRL and verl are run for real by `make test-trainers`.
"""

import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from fastapi import Response
from live_server import listening
from pydantic import BaseModel
from reward_fakes import QUESTION, TRACE, rewarding_app
from test_peer_rewards import nemo_gym
from trainer_peers import NemoGym, RunStoppedError, openrlhf, slime

GOOD, BAD = QUESTION, "trouble"


def batch(*questions: str) -> dict[str, Any]:
    return {
        "query": [f"{question}\n{TRACE}" for question in questions],
        "prompts": [f"{question}\n" for question in questions],
        "labels": ["A"] * len(questions),
    }


def sample(question: str) -> dict[str, Any]:
    return {"prompt": question, "response": TRACE, "label": "A"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def answers(url: str, path: str) -> dict[int, int]:
    """How often a route answered with each status."""
    async with httpx2.AsyncClient(base_url=url) as client:
        text = (await client.get("/metrics")).text
    found = re.findall(rf'medverify_http_answers_total{{path="{path}",status="(\d+)"}} (\d+)', text)
    return {int(status): int(count) for status, count in found}


# ---- OpenRLHF and slime: no word for it, so their runs stop ------------------------------------------------------------


async def test_what_is_judged_is_a_number() -> None:
    async with listening(rewarding_app()) as url:
        assert all(0 < reward <= 1 for reward in await openrlhf(f"{url}/get_reward", batch(GOOD, GOOD)))
        assert await openrlhf(f"{url}/get_reward", batch()) == []  # extra workers send nothing
        assert 0 < await slime(f"{url}/slime", sample(GOOD)) <= 1


async def test_a_sample_that_is_not_judged_stops_the_run_after_all_tries() -> None:
    async with listening(rewarding_app()) as url:
        with pytest.raises(RunStoppedError, match="5 tries"):
            await openrlhf(f"{url}/get_reward", batch(GOOD, BAD))
        with pytest.raises(RunStoppedError, match="10 tries"):
            await slime(f"{url}/slime", sample(BAD))
        assert await answers(url, "/get_reward") == {503: 5}
        assert await answers(url, "/slime") == {503: 10}


async def test_a_service_that_was_stopped_stops_the_run() -> None:
    async with listening(rewarding_app()) as url:
        await openrlhf(f"{url}/get_reward", batch(GOOD))
    with pytest.raises(RunStoppedError):
        await openrlhf(f"{url}/get_reward", batch(GOOD))
    with pytest.raises(RunStoppedError):
        await slime(f"{url}/slime", sample(GOOD))


async def test_a_service_that_comes_back_between_two_tries_gives_the_number() -> None:
    port, pauses = free_port(), 0
    async with listening(rewarding_app(), port) as url:
        wanted = await openrlhf(f"{url}/get_reward", batch(GOOD))

    @asynccontextmanager
    async def coming_back(after: int) -> AsyncIterator[Any]:
        server, begun = listening(rewarding_app(), port), False

        async def pause() -> None:
            nonlocal pauses, begun
            pauses += 1
            if pauses == after:
                begun = True
                await server.__aenter__()

        try:
            yield pause
        finally:
            if begun:
                await server.__aexit__(None, None, None)

    async with coming_back(after=3) as pause:
        assert await openrlhf(f"{url}/get_reward", batch(GOOD), pause) == wanted
    assert pauses == 3
    async with coming_back(after=9) as pause:
        assert await slime(f"{url}/slime", sample(GOOD), pause) == pytest.approx(wanted[0])
    assert pauses == 9


# ---- NeMo Gym: masked, and in the file of failures ---------------------------------------------------------------------


@pytest.fixture
def page_server(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The server of docs/trainers/nemo-gym.md, as it stands there, with as much of NeMo Gym around it as it uses."""
    base = ModuleType("nemo_gym.base_resources_server")

    class BaseResourcesServerConfig(BaseModel):
        """A name and an address, in NeMo Gym."""

    class BaseVerifyRequest(BaseModel):
        responses_create_params: dict[str, Any]
        response: dict[str, Any]

    class SimpleResourcesServer(BaseModel):
        """Serves `verify` at `/verify`, in NeMo Gym."""

    vars(base).update(
        BaseResourcesServerConfig=BaseResourcesServerConfig,
        BaseVerifyRequest=BaseVerifyRequest,
        SimpleResourcesServer=SimpleResourcesServer,
    )
    monkeypatch.setitem(sys.modules, "nemo_gym", ModuleType("nemo_gym"))
    monkeypatch.setitem(sys.modules, "nemo_gym.base_resources_server", base)
    page = (repository / "docs/trainers/nemo-gym.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.S)
    module = ModuleType("app")
    exec(compile(code, "docs/trainers/nemo-gym.md", "exec"), module.__dict__)
    return module


def gym(module: ModuleType, url: str) -> NemoGym:
    server = module.Medverify(config=module.MedverifyConfig(url=url))

    async def verify(rollout: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        import json

        answer = await server.verify(module.MedverifyRequest.model_validate(rollout))
        if isinstance(answer, Response):
            return answer.status_code, json.loads(bytes(answer.body))
        return 200, answer

    return NemoGym(verify)


async def test_a_rollout_that_is_not_judged_is_a_failure_and_not_a_zero(page_server: ModuleType) -> None:
    async with listening(rewarding_app()) as url:
        collector = gym(page_server, url)
        await collector.collect(nemo_gym(), nemo_gym(BAD), nemo_gym("darkness"), nemo_gym())
    assert [result["reward"] > 0 for result in collector.trained_on] == [True, True]
    assert len(collector.failures) == 2
    for failure in collector.failures:
        assert failure["_ng_failure_class"] == "judge_failed"
        assert failure["instance_config"]["mask_sample"] is True


async def test_a_service_that_is_away_masks_every_rollout(page_server: ModuleType) -> None:
    async with listening(rewarding_app()) as url:
        pass
    collector = gym(page_server, url)
    sent = nemo_gym(label="A", instance_config={"agent": "x"})
    await collector.collect(sent, nemo_gym())
    assert not collector.trained_on
    failure = collector.failures[0]
    assert failure["_ng_failure_class"] == "judge_failed"
    assert failure["_ng_failure_judge_error"]
    assert failure["instance_config"] == {"agent": "x", "mask_sample": True}
    assert (failure["label"], failure["response"]) == ("A", sent["response"])


async def test_a_rollout_that_does_not_fit_ends_the_run(page_server: ModuleType) -> None:
    """It would not fit the next time either: whoever made the data set is told so."""
    async with listening(rewarding_app()) as url:
        with pytest.raises(RunStoppedError, match="422"):
            await gym(page_server, url).collect(nemo_gym(asked=""))
