"""What the page consists of, read as files; test_page_in_browser.py uses it as people do."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serve_fakes import app_of

from eval.report import palette
from verifier.examples import example_cases
from verifier.types import Case

FILES = {file.name: file.read_text(encoding="utf-8") for file in resources.files("serve").joinpath("page").iterdir()}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app_of()) as client:
        yield client


def address(name: str) -> str:
    return "/" if name == "index.html" else f"/page/{name}"


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_file_is_served_as_what_it_is_under_a_policy_that_lets_nothing_else_in(
    client: TestClient, name: str
) -> None:
    answer = client.get(address(name))
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert answer.status_code == 200
    assert answer.text == FILES[name]
    assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    assert answer.headers["x-content-type-options"] == "nosniff"
    [policy] = answer.headers.get_list("content-security-policy")
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy


def test_a_file_that_is_known_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/page/page.js", headers={"If-None-Match": first.headers["etag"]}).status_code == 200


def test_nothing_else_lies_under_the_page(client: TestClient) -> None:
    for path in ("/page/", "/page/../app.py", "/page/%2e%2e/app.py", "/page/absent.js"):
        assert client.get(path).status_code == 404


def test_the_examples_are_the_shipped_ones(client: TestClient) -> None:
    assert [Case.model_validate(one) for one in client.get("/page/cases.json").json()] == example_cases()


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.to: list[str] = []
        self.ids: list[str] = []
        self.inline: list[str] = []
        self.named: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found: dict[str, Any] = dict(attrs)
        self.to += [found[name] for name in ("src", "href", "action") if name in found]
        self.ids += [found["id"]] if "id" in found else []
        self.named += [
            name for key in ("for", "aria-labelledby", "aria-describedby") for name in found.get(key, "").split()
        ]
        self.inline += [name for name in found if name.startswith("on") or name == "style"]
        self.inline += ["style element"] if tag == "style" else []
        self.inline += ["script without a file"] if tag == "script" and "src" not in found else []


def test_the_page_loads_only_files_of_its_own() -> None:
    links = Links()
    links.feed(FILES["index.html"])
    assert not links.inline
    anchors = {link[1:] for link in links.to if link.startswith("#")}
    assert {link for link in links.to if not link.startswith("#")} <= {address(name) for name in FILES}
    assert anchors | set(links.named) <= set(links.ids)
    assert len(links.ids) == len(set(links.ids))
    for name, text in FILES.items():
        outside = [url for url in re.findall(r"\b\w+://[^\s\"')]+", text) if url != "http://www.w3.org/2000/svg"]
        assert not outside, name
        assert "@import" not in text
        assert "url(" not in text


def test_scripts_import_what_there_is_and_ask_for_elements_that_are_there() -> None:
    links = Links()
    links.feed(FILES["index.html"])
    for name, text in FILES.items():
        if name.endswith(".js"):
            assert set(re.findall(r'from "\./([\w.]+)"', text)) <= set(FILES)
            assert set(re.findall(r'byId\("([\w-]+)"\)', text)) <= set(links.ids)


@pytest.mark.parametrize(
    "way", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"]
)
def test_no_script_makes_markup_of_text(way: str) -> None:
    assert not [name for name, text in FILES.items() if way in text]


# ---- colours ---------------------------------------------------------------------------------------------------------


def colours(scheme: str) -> dict[str, str]:
    light, dark = FILES["page.css"].split("@media (prefers-color-scheme: dark)")
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light if scheme == "light" else dark))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_the_reports_and_can_be_told_from_their_ground(scheme: str) -> None:
    """WCAG 2.2, AA: 4.5 for text, 3 for the edges of fields."""
    page = colours(scheme)
    report = {role.name: getattr(role, scheme) for role in palette.ROLES}
    for role in ("ink", "muted", "line", "ground", "series-1"):
        assert page[role] == report[role]
    for ground in ("ground", "wash"):
        for text in ("ink", "muted", "good", "bad", "series-1"):
            assert contrast(page[text], page[ground]) >= 4.5, (text, ground)
    assert contrast(page["field"], page["ground"]) >= 3
