"""A service with a scripted judge, and its page in a real Chromium."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chromium import opened
from live_server import listening
from serve_fakes import INFO, believes, writes

from configs.settings import AuditSettings, JudgeSettings, PathSettings, ServeSettings, Settings
from retrieval.passage import Hit, Passage, RetrievalError
from serve.app import create_app
from serve.stores import Stores
from verifier.engines.scripted import Script, ScriptedEngine
from verifier.judge import Judge
from verifier.prompt import load_prompt

BOOK = (
    Passage(id="b1", title="Warfarin", text="It inhibits VKOR.", source="A book", corpus="shelf"),
    Passage(id="b2", title="Heparin", text="It activates antithrombin.", source="https://example.org/heparin"),
)


@dataclass
class Shelf:
    """Finds the same passages for every query, or is out of order."""

    passages: Sequence[Passage] = BOOK
    digest: str = "1" * 64

    async def search(self, query: str, k: int) -> list[Hit]:
        if query == "outage":
            raise RetrievalError("the index is gone")
        return [
            Hit(passage=passage, score=0.9 / rank, rank=rank) for rank, passage in enumerate(self.passages, start=1)
        ]

    async def aclose(self) -> None:
        """Nothing to close."""


@asynccontextmanager
async def service(
    state: Path, script: Script = writes, shelf: Shelf | None = None, *, delay_s: float = 0.0, **serve: Any
) -> AsyncIterator[str]:
    """The whole service, with keys, cache and audit log under `state`; gives its address."""
    settings = Settings(
        paths=PathSettings(cache=state, state=state),
        serve=ServeSettings(**{"audit": AuditSettings(texts=True), **serve}),
    )
    judge = Judge(
        ScriptedEngine(script, believes, delay_s=delay_s),
        shelf or Shelf(),
        load_prompt("judge"),
        "free",
        JudgeSettings(force_verdict=False),
    )
    app = create_app(judge, settings.serve, INFO, Stores.of(settings))
    async with asyncio.timeout(90), listening(app) as url:
        yield url


@asynccontextmanager
async def page_at(url: str, **context: Any) -> AsyncIterator[Any]:
    """The page of a service, ready to be used."""
    async with opened(url, f"{url}/", **context) as page:
        await page.get_by_role("button", name="outdated claim").wait_for()
        yield page
