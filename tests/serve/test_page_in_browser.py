"""The page in a real Chromium: `make test-page`."""

from pathlib import Path
from typing import Any

import pytest
from browser import Shelf, page_at, service
from chromium import CHROMIUM, PHONE, sideways
from serve_fakes import CASE

from retrieval.passage import Passage
from serve.keys import FILE, KeyStore, Scope

pytest.importorskip("playwright", reason="make test-page installs it")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


async def fill(page: Any, question: str, trace: str, options: str = "") -> None:
    await page.get_by_label("Question").fill(question)
    await page.get_by_label("Options").fill(options)
    await page.get_by_label("Reasoning to be judged").fill(trace)


async def judge(page: Any, question: str = CASE["question"], trace: str = "It blocks VKOR.") -> None:
    await fill(page, question, trace)
    await page.get_by_role("button", name="Judge", exact=True).click()


async def outcome(page: Any) -> str:
    """The headline, once it is final."""
    await page.locator("#episode:not(.under-way)").wait_for()
    return str(await page.locator("#outcome").inner_text())


async def test_a_case_is_judged_from_the_form_to_the_verdict(tmp_path: Path) -> None:
    async with service(tmp_path) as url, page_at(url) as page:
        assert "A research tool, not a medical device." in await page.locator("header").inner_text()
        assert "AUROC 0.600" in await page.locator("#judge").inner_text()
        await fill(page, "What does warfarin inhibit?", "It blocks VKOR.\n\nThe answer is A.", "A. VKOR\nB) Thrombin")
        await page.get_by_label("Each line is a step").check()
        await page.get_by_role("button", name="Judge", exact=True).click()
        assert await outcome(page) == "Free of errors"

        steps = page.locator("#happened > li")
        assert await steps.locator("h4").all_inner_texts() == ["Thought", "Search", "Thought", "Verdict"]
        assert "The reasoning claims VKOR." in await steps.nth(0).inner_text()
        search = await steps.nth(1).inner_text()
        assert all(
            part in search for part in ("warfarin target", "It inhibits VKOR.", "score 0.900", "A book", "Heparin")
        )
        assert await page.locator("#read .trace li").all_inner_texts() == ["It blocks VKOR.", "The answer is A."]
        assert await page.locator("#read .choices li").all_inner_texts() == ["A\nVKOR", "B\nThrombin"]
        numbers = await page.locator("#numbers").inner_text()
        assert all(part in numbers for part in ("0.900", "not calibrated", "80\u00a0%"))
        bar = page.get_by_role("img", name="Probability of being free of errors: 0.900")
        box, mark = await bar.bounding_box(), await bar.locator(".mark.p").bounding_box()
        assert (mark["x"] + mark["width"] / 2 - box["x"]) / box["width"] == pytest.approx(0.9, abs=0.01)
        assert await page.locator("#said").inner_text() == "Free of errors, probability 0.900"  # what is read out


async def test_what_happens_is_shown_while_it_happens(tmp_path: Path) -> None:
    async with service(tmp_path, delay_s=1.0) as url, page_at(url) as page:
        await judge(page)
        await page.locator("#happened").get_by_text("The reasoning claims VKOR.").wait_for()
        assert await page.locator("#episode.under-way").count() == 1
        assert await page.locator("#happened").get_by_text("The passage agrees.").count() == 0
        assert await outcome(page) == "Free of errors"
        assert await page.locator("#happened").get_by_text("The passage agrees.").count() == 1


async def test_stopping_is_no_judgment(tmp_path: Path) -> None:
    async with service(tmp_path, delay_s=30.0) as url, page_at(url) as page:
        await judge(page)
        await page.get_by_role("button", name="Stop").click()
        assert await outcome(page) == "Stopped"
        assert "neither right nor wrong" in await page.locator("#numbers").inner_text()
        free = "fetch('/ready').then((answer) => answer.json()).then((ready) => ready.cases_in_flight === 0)"
        await page.wait_for_function(f"() => {free}")  # and the work is over as well


async def test_a_judgment_that_was_made_before_is_said_to_be(tmp_path: Path) -> None:
    async with service(tmp_path) as url, page_at(url) as page:
        await judge(page)
        await outcome(page)
        await page.get_by_role("button", name="Judge", exact=True).click()
        await page.get_by_text("It was judged before").wait_for()
        assert await outcome(page) == "Free of errors"
        assert await page.locator("#happened h4").all_inner_texts() == ["Thoughts", "Search"]
        assert "It inhibits VKOR." in await page.locator("#happened").inner_text()


@pytest.mark.parametrize(
    ("question", "why"),
    [("darkness?", "The search failed"), ("trouble?", "The model failed"), ("silence?", "no readable")],
)
async def test_a_failure_is_shown_as_one_and_never_as_a_number(tmp_path: Path, question: str, why: str) -> None:
    async with service(tmp_path) as url, page_at(url) as page:
        await judge(page, question)
        assert await outcome(page) == "Not judged"
        said = await page.locator("#numbers .failure").inner_text()
        assert why in said
        assert "neither right nor wrong" in said
        assert await page.locator(".bar, .figure").count() == 0


async def test_a_service_that_is_full_or_gone_is_said_to_be(tmp_path: Path) -> None:
    async with service(tmp_path, delay_s=30.0, max_queue=1, retry_after_s=7) as url, page_at(url) as page:
        other = await page.context.new_page()
        await other.goto(url)
        await judge(other)
        await other.locator("#outcome", has_text="Thinking").wait_for()
        await judge(page)
        assert await outcome(page) == "Not judged"
        assert "Try again in 7 seconds." in await page.locator("#numbers").inner_text()
        await page.context.set_offline(True)
        await page.get_by_role("button", name="Judge", exact=True).click()
        await page.get_by_text("The service cannot be reached", exact=True).wait_for()
        assert await outcome(page) == "Not judged"


FORGED = "<img src=x onerror=alert(1)><script>alert(2)</script><b>bold</b>"


async def test_forged_markup_is_text_wherever_it_comes_from(tmp_path: Path) -> None:
    def forging(text: str) -> str:
        if "[1] " in text:
            return f"<think>after {FORGED}</think><answer>0</answer>"
        return f"<think>before {FORGED}</think><search>query {FORGED}</search>"

    shelf = Shelf([
        Passage(id=FORGED, title=f"title {FORGED}", text=f"text {FORGED}", source="javascript:alert(3)", corpus=FORGED),
        Passage(id="2", title="", text="second", source='https://x.test/"onmouseover="alert(4)'),
    ])  # fmt: skip
    async with service(tmp_path, forging, shelf) as url, page_at(url) as page:
        await fill(page, f"question {FORGED}", f"trace {FORGED}", f"A. option {FORGED}")
        await page.get_by_role("button", name="Judge", exact=True).click()
        await outcome(page)
        shown = await page.locator("#episode").inner_text()
        for part in ("before", "after", "query", "title", "text", "question", "trace", "option"):
            assert f"{part} {FORGED}" in shown
        row = page.locator("#past-list > li").first
        await row.locator("summary").first.click()
        await row.locator(".thought").wait_for()
        assert f"before {FORGED}" in await row.inner_text()
        assert await page.locator("main img, main script, main b, main [onerror], main [onmouseover]").count() == 0
        assert await page.locator("main a").evaluate_all("all => all.map((one) => new URL(one.href).protocol)") == [
            "https:", "https:",
        ]  # fmt: skip


async def test_past_judgments_can_be_filtered_and_opened(tmp_path: Path) -> None:
    async with service(tmp_path) as url, page_at(url) as page:
        await page.get_by_text("None.").wait_for()
        for question in ("first?", "darkness?", "third?"):
            await judge(page, question)
            await outcome(page)
            await page.locator("#past-list").get_by_text(question).wait_for()
        rows = page.locator("#past-list > li")
        assert await rows.locator(".verdict").all_inner_texts() == ["Free of errors", "Not judged", "Free of errors"]
        await page.locator("#status").select_option("search failed")
        await page.get_by_role("button", name="Show").click()
        await page.get_by_text("1 shown, newest first.").wait_for()
        assert "darkness?" in await rows.inner_text()
        await page.locator("#status").select_option("any")
        await page.locator("#verdict").select_option("free of errors")
        await page.get_by_role("button", name="Show").click()
        await page.get_by_text("2 shown, newest first.").wait_for()
        await rows.nth(1).locator("summary").first.click()
        await rows.nth(1).locator(".search").wait_for()
        whole = await rows.nth(1).inner_text()
        assert all(part in whole for part in ("first?", "The reasoning claims VKOR.", "It inhibits VKOR.", "0.900"))


async def test_where_texts_are_not_kept_the_evidence_still_is(tmp_path: Path) -> None:
    async with service(tmp_path, audit={}) as url, page_at(url) as page:
        await judge(page)
        await outcome(page)
        row = page.locator("#past-list > li")
        await row.locator("summary").first.click()
        await row.locator(".search").wait_for()
        assert "only their digests" in await row.inner_text()
        assert "It inhibits VKOR." in await row.inner_text()


async def test_a_key_is_asked_for_kept_in_the_tab_and_forgotten(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / FILE)
    token = keys.add("reader", list(Scope))
    keys.close()
    async with service(tmp_path) as url, page_at(url) as page:
        assert "without a key" in await page.locator("#judge").inner_text()
        await judge(page)
        assert await outcome(page) == "Not judged"
        key = page.get_by_label("Key", exact=True)
        assert await key.evaluate("field => field === document.activeElement")  # opened, ready to be typed in
        await key.fill(token)
        await key.press("Enter")
        await page.get_by_text("AUROC 0.600").wait_for()
        await page.get_by_role("button", name="Judge", exact=True).click()
        await page.get_by_text("Free of errors", exact=True).first.wait_for()
        await page.reload()
        await page.get_by_text("AUROC 0.600").wait_for()
        stored = "[JSON.stringify(localStorage), document.cookie, location.href]"
        assert not [place for place in await page.evaluate(stored) if token in place]
        await page.get_by_text("API key").click()
        await page.get_by_role("button", name="Forget").click()
        await page.get_by_text("without a key").wait_for()
        assert await page.evaluate("sessionStorage.length") == 0


async def test_the_keyboard_is_enough(tmp_path: Path) -> None:
    async with service(tmp_path) as url, page_at(url) as page:
        focused = "() => document.activeElement.id || document.activeElement.textContent"
        order = []
        for _ in range(13):
            await page.keyboard.press("Tab")
            order.append(await page.evaluate(focused))
            style = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert style == "solid", order[-1]  # it can be seen where one is
        assert order == [
            "Skip to the case", "Judge a case", "Past judgments", "API key", "right", "wrong mechanism", "outdated claim",
            "question", "options", "trace", "steps", "judge-it", "seed",
        ]  # fmt: skip
        await page.evaluate("document.querySelector('.example').focus()")
        await page.keyboard.press("Enter")  # an example fills the form and leads to its button
        assert await page.evaluate(focused) == "judge-it"
        await page.keyboard.press("Space")
        assert await outcome(page) == "Free of errors"
        assert await page.evaluate(focused) == "outcome"
        await page.keyboard.press("Tab")  # on to the first passage, which Enter closes
        assert await page.locator("#happened details").first.get_attribute("open") == ""
        await page.keyboard.press("Enter")
        assert await page.locator("#happened details").first.get_attribute("open") is None


async def test_it_fits_a_phone(tmp_path: Path) -> None:
    long = "acetylsalicylic" * 20
    async with service(tmp_path) as url, page_at(url, viewport=PHONE) as page:
        assert await sideways(page) <= 0
        await fill(page, f"What is {long}?", f"It is {long}.", f"A. {long}")
        await page.get_by_role("button", name="Judge", exact=True).click()
        await outcome(page)
        await page.locator("#whole summary").click()
        await page.locator("#past-list > li summary").first.click()
        await page.locator("#past-list .search").wait_for()
        assert await sideways(page) <= 0
        small = "all => all.filter((one) => one.getBoundingClientRect().height < 24).map((one) => one.outerHTML)"
        assert await page.locator("button:visible, select:visible, summary:visible").evaluate_all(small) == []


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(22, 25, 28)")])
async def test_it_is_light_or_dark_as_its_reader_likes(tmp_path: Path, scheme: str, ground: str) -> None:
    async with service(tmp_path) as url, page_at(url, color_scheme=scheme) as page:
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
        field = await page.evaluate("getComputedStyle(document.getElementById('trace')).backgroundColor")
        assert field == ground


async def test_nothing_moves_for_those_who_ask_for_it(tmp_path: Path) -> None:
    async with service(tmp_path, delay_s=30.0) as url, page_at(url, reduced_motion="reduce") as page:
        await judge(page)
        await page.locator("#outcome.working").wait_for()
        assert await page.evaluate("document.getAnimations().length") == 0


async def test_a_case_in_json_fills_the_form(tmp_path: Path) -> None:
    pasted = """{"id": "1", "question": {"text": "Q?", "options": {"A": "one", "B": "two"}}, "trace": ["s1", "s2"]}"""
    paste = """text => {
        const clipboardData = new DataTransfer();
        clipboardData.setData("text", text);
        const event = new ClipboardEvent("paste", { clipboardData, cancelable: true, bubbles: true });
        document.getElementById("question").dispatchEvent(event);
        return event.defaultPrevented;
    }"""
    async with service(tmp_path) as url, page_at(url) as page:
        assert await page.evaluate(paste, "Which of these?") is False
        assert await page.evaluate(paste, pasted) is True
        assert await page.get_by_label("Question").input_value() == "Q?"
        assert await page.get_by_label("Options").input_value() == "A. one\nB. two"
        assert await page.get_by_label("Reasoning to be judged").input_value() == "s1\ns2"
        assert await page.get_by_label("Each line is a step").is_checked()


async def test_what_cannot_be_sent_is_said_at_its_field(tmp_path: Path) -> None:
    async with service(tmp_path) as url, page_at(url) as page:
        await fill(page, "q", "t", "A. one\nno letter here")
        await page.get_by_role("button", name="Judge", exact=True).click()
        said = await page.get_by_label("Options").evaluate("field => field.validationMessage")
        assert said == "Not an option: “no letter here”. Write “A. text”."
        assert await page.locator("#episode").is_hidden()
        await page.get_by_label("Options").fill("A. one")
        await page.get_by_role("button", name="Judge", exact=True).click()
        assert await outcome(page) == "Free of errors"
