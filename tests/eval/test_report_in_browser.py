"""The report of an evaluation in a real Chromium, from its file and without a network: `make test-page`."""

from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, PHONE, opened, sideways
from pack_fakes import judgment, labelled, pack
from report_fakes import EVIL, report_of

from eval.evaluation.evaluate import Judged, evaluate
from eval.report.schema import Report
from eval.report.write import write_report

pytest.importorskip("playwright", reason="make test-page installs it")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 28)"}
DESKTOP = {"width": 1280, "height": 900}
LONG = "acetylsalicylic" * 20  # no room to break it


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two packs, of which the second is unfinished, by a judge and its second seed; with words that no line can hold."""
    cases = pack([["A", "B", "A", "C"], ["A", "B", None, "B"], ["C", "B", "A", "A"]] * 2, generators=("x", EVIL))
    first = report_of([*cases, *(labelled(9, trace, "B", generator=LONG, text=LONG) for trace in range(2))])
    more = pack([["A", "B"]] * 6)
    judged = [judgment(one, (number % 5) / 5, critique=LONG) for number, one in enumerate(more[:9])]
    second = evaluate(LONG[:90], more, [Judged("judge", 0, judged)])
    folder = tmp_path_factory.mktemp("report")
    return write_report(folder, Report(judge=first.judge, packs=[*first.packs, second]))[0]


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", GROUNDS)
async def test_it_can_be_read_and_used_with_the_keyboard_alone(
    report: Path, viewport: dict[str, int], scheme: str
) -> None:
    async with opened(
        report.as_uri(), report.as_uri(), said="", viewport=viewport, color_scheme=scheme, offline=True
    ) as page:
        assert "This run is unfinished: 61 of 64 traces" in await page.locator(".unfinished").inner_text()
        assert await sideways(page) <= 0
        await _figures_can_be_seen(page, scheme)
        names = page.locator("tr:has(td.number) > td:first-child")
        assert await names.evaluate_all("all => Math.max(...all.map((one) => one.offsetWidth))") <= 400
        examples = await page.locator("details").count()
        assert examples > 10
        assert await _open_all_with_the_keyboard(page) == examples
        assert await page.locator("details[open]").count() == examples
        assert await sideways(page) <= 0


async def _figures_can_be_seen(page: Any, scheme: str) -> None:
    """They are drawn as wide as there is room, in ink that stands out from the ground."""
    assert await page.locator(".drawings svg").count() == 12
    wide = await page.locator(".drawings").first.evaluate("it => it.clientWidth")
    for figure in await page.locator(".drawings svg").all():
        await figure.scroll_into_view_if_needed()
        assert await figure.is_visible()
        box = await figure.bounding_box()
        assert min(300, wide - 1) <= box["width"] <= wide
        assert box["height"] > 200
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == GROUNDS[scheme]
    inks = await page.locator(".drawings svg text").evaluate_all("all => all.map((one) => getComputedStyle(one).fill)")
    assert inks
    assert GROUNDS[scheme] not in inks


async def _open_all_with_the_keyboard(page: Any) -> int:
    """Go through the page by Tab alone, opening what can be opened; how many that were."""
    stops = await page.locator("a, summary, [tabindex]").count()
    found = 0
    for _ in range(stops):
        await page.keyboard.press("Tab")
        kind = await page.evaluate("document.activeElement.localName")
        assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", kind
        if kind == "summary":
            await page.keyboard.press("Enter")
            found += 1
    return found


async def test_a_wide_table_scrolls_by_itself_with_the_keyboard(report: Path) -> None:
    async with opened(report.as_uri(), report.as_uri(), said="", viewport=PHONE, offline=True) as page:
        table = page.locator(".scroll").first
        assert await table.evaluate("it => it.scrollWidth > it.clientWidth")
        await table.focus()
        await page.keyboard.press("ArrowRight")
        await page.wait_for_function("() => document.activeElement.scrollLeft > 0")
        assert await page.evaluate("window.scrollX") == 0
