"""A real Chromium without a screen, in which nothing that goes wrong goes unnoticed."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

CHROMIUM = shutil.which("chromium")
#: It is root in a container without a GPU, and has nothing to look for outside.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE = {"width": 360, "height": 740}


@asynccontextmanager
async def opened(url: str, own: str, *, said: str = "Content Security", **context: Any) -> AsyncIterator[Any]:
    """A page, opened.

    Args:
        url: where it lies.
        own: how the addresses begin that it may ask for; others are a fault, and are not gone to.
        said: which messages in the console are a fault: those that hold this. With nothing to hold, all.
        context: of the browser, as Playwright takes it.
    """
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        page = await (await chromium.new_context(**context)).new_page()
        faults: list[str] = []
        asked: list[str] = []
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if said in message.text else None)
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        await page.route(lambda address: not address.startswith(own), lambda route: route.abort())
        await page.goto(url)
        yield page
        await chromium.close()
        assert not faults
        assert all(address.startswith(own) for address in asked), asked


async def sideways(page: Any) -> int:
    """By how many pixels the page is wider than the window."""
    return int(await page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))
