"""The functions of the pages on OpenRLHF and slime, as they stand there, against a service where keys are in force."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import requests
from live_server import listening
from reward_fakes import QUESTION, TRACE, rewarding_app

from serve.keys import FILE, KeyStore, Scope
from serve.stores import Stores

CHAT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / FILE)


@contextmanager
def page_of(repository: Path, name: str, monkeypatch: pytest.MonkeyPatch, url: str, key: str) -> Iterator[ModuleType]:
    """The module that a page shows."""
    monkeypatch.setenv("MEDVERIFY_URL", url)
    monkeypatch.setenv("MEDVERIFY_API_KEY", key)
    page = (repository / "docs" / "trainers" / name).read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.S)
    module = ModuleType("page")
    exec(compile(code, name, "exec"), module.__dict__)
    yield module


def app_with(keys: KeyStore) -> Any:
    return rewarding_app(stores=Stores(keys=keys), retry_after_s=1)


async def test_openrlhf(repository: Path, keys: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    token = keys.add("trainer", [Scope.JUDGE])
    async with listening(app_with(keys)) as url:
        with page_of(repository, "openrlhf.md", monkeypatch, url, token) as page:
            found = await asyncio.to_thread(page.reward_func, [CHAT + TRACE, CHAT], [CHAT, CHAT], ["A", "A"])
            assert found["rewards"].tolist()[0] > 0
            assert found["rewards"].tolist()[1] == 0  # an empty completion is the policy's own doing
            assert found["scores"].tolist() == found["rewards"].tolist()
            assert {len(values) for values in found["extra_logs"].values()} == {2}
            with pytest.raises(requests.HTTPError, match="422"):  # not guessed at
                await asyncio.to_thread(page.reward_func, [TRACE], [CHAT], ["A"])
            vars(page)["time"] = SimpleNamespace(sleep=lambda _: None)  # of the page, and of nobody else
            with pytest.raises(requests.HTTPError, match="503"):
                await asyncio.to_thread(page.reward_func, [f"trouble\n{TRACE}"], ["trouble\n"], ["A"])
        monkeypatch.setenv("MEDVERIFY_API_KEY", "wrong")
        with pytest.raises(requests.HTTPError, match="401"):
            await asyncio.to_thread(page.reward_func, [CHAT + TRACE], [CHAT], ["A"])


async def test_slime(repository: Path, keys: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    token = keys.add("trainer", [Scope.JUDGE])
    async with listening(app_with(keys)) as url:
        with page_of(repository, "slime.md", monkeypatch, url, token) as page:

            async def score(response: str, prompt: str = CHAT) -> float:
                got = await page.reward(None, SimpleNamespace(prompt=prompt, response=response, label="A"))
                return float(got["score"])

            assert await score(TRACE) > 0
            assert await score("") == 0
            vars(page)["asyncio"] = SimpleNamespace(sleep=no_wait, to_thread=asyncio.to_thread)
            with pytest.raises(requests.HTTPError, match="503"):
                await score(TRACE, "trouble")


async def no_wait(_: float) -> None:
    """Come back at once."""
