"""Our tool as verl-tool's server uses it, in front of a running retrieval server."""

import asyncio
from typing import Any

import pytest
from live_server import listening
from search_fakes import WordRanker, search_app

from curriculum.verl_recipe.verl_tool import URL, MedverifySearch
from retrieval.passage import RetrievalError, UnavailableError

SEARCH = "<think>Which target?</think><search> warfarin </search>"
ANSWER = "<think>Enough.</think><answer>1</answer>"


async def process(tool: MedverifySearch, actions: list[str], **flags: Any) -> Any:
    """What `AsyncToolManager` of verl-tool 980962b does with a request that this tool is the only one for."""
    count = len(actions)
    extra = [{"finish": False, "is_last_step": False, **flags} for _ in actions]
    assert asyncio.iscoroutinefunction(tool.aget_observations)
    try:
        return await tool.aget_observations([f"t{number}" for number in range(count)], actions, extra)
    finally:
        await tool.aclose()


async def test_a_search_is_shown_as_the_judge_sees_it(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url:
        tool = MedverifySearch(num_workers=4, url=url)
        observations, dones, valids = await process(tool, [SEARCH, ANSWER, "no tags", "<search></search>"])
    assert observations[0].startswith("\n<information>\n[1] Warfarin")
    assert observations[0].count("</information>") == 1  # the passages' own are made harmless
    assert observations[1] == ""
    assert observations[2]["obs"] == observations[3]["obs"] == ""
    assert "no complete <search>" in observations[2]["invalid_reason"]
    assert dones == [False, True, False, False]
    assert valids == [True, True, False, False]


async def test_a_finished_trajectory_is_not_searched_for(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url:
        seen = await process(MedverifySearch(url=url), [SEARCH], finish=True)
    assert seen == ([""], [True], [True])
    assert not ranker.batches


async def test_an_outage_is_an_error_and_no_observation(ranker: WordRanker) -> None:
    async with listening(search_app(ranker)) as url:
        tool = MedverifySearch(url=url, retries=0)
        with pytest.raises(RetrievalError):
            await process(tool, ["<think>x</think><search>outage</search>"])
    with pytest.raises(UnavailableError, match="ConnectError"):  # nobody listens any more
        await process(MedverifySearch(url=url, retries=0), [SEARCH])


def test_which_actions_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, "http://127.0.0.1:9/")
    tool = MedverifySearch(num_workers=1)
    assert tool.tool_type == "medverify_search"
    assert "<search>" in tool.get_usage_inst()
    assert tool.parse_action(SEARCH) == ("warfarin", True)
    assert tool.parse_action(ANSWER) == ("1", True)
    assert tool.get_action_priority(SEARCH, {}) == 100
    # Talk of a search is no search.
    assert tool.get_action_priority("<think>should I write <search>x</search>?</think>", {}) == -1
    # What its finish tool calls.
    assert not tool.has_env("t0")
    assert tool.get_env_cache_keys() == []
    tool.delete_env("t0")


def test_an_address_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL, raising=False)
    with pytest.raises(ValueError, match=URL):
        MedverifySearch()
