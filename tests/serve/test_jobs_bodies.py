import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from job_fakes import LINES, service
from serve_fakes import CASE
from test_select_route import JSON_VALUES

from configs.settings import JobSettings


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with service(tmp_path) as client:
        yield client


# ---- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["cases"]),
        ({"cases": []}, ["cases"]),
        ({"cases": "q"}, ["cases"]),
        ({"cases": [CASE, {"question": "q"}]}, ["cases.1.trace"]),
        ({"cases": [CASE, {"question": 5, "trace": "t"}]}, ["cases.1.question"]),
        ({"cases": [CASE, 5]}, ["cases.1"]),
        ({"cases": [CASE], "seed": -1}, ["seed"]),
        ({"cases": [CASE], "extra": 1}, ["extra"]),
        ([CASE], ["body"]),
        (5, ["body"]),
    ],
)
def test_the_field_is_named_as_it_was_sent(client: TestClient, body: object, fields: list[str]) -> None:
    response = client.post("/jobs", json=body)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == fields


def test_a_line_is_no_longer_than_a_body(tmp_path: Path) -> None:
    """An upload that is one line would be held in memory as a whole."""
    with service(tmp_path, max_body_bytes=2000) as client:
        fits = json.dumps({**CASE, "question": "q" * 1800})
        assert client.post("/jobs", content=f"{fits}\n{fits}\n", headers=LINES).status_code == 202
        for long in (json.dumps({**CASE, "question": "q" * 2000}), " " * 2001):
            response = client.post("/jobs", content=f"{fits}\n{long}\n{fits}", headers=LINES)
            assert response.status_code == 413
            assert response.json()["type"] == "urn:medverify:problem:body-too-large"
            assert response.json()["detail"].startswith("line 2 exceeds 2000 bytes")
        assert len(client.get("/jobs").json()["jobs"]) == 1


def test_an_upload_under_way_takes_room_as_well(tmp_path: Path) -> None:
    with service(tmp_path, jobs=JobSettings(max_kept_bytes=5000)) as client:
        lines = (json.dumps(CASE) + "\n") * 2000
        response = client.post("/jobs", content=lines, headers=LINES)
        assert (response.status_code, response.json()["type"]) == (503, "urn:medverify:problem:jobs-full")
        assert not list(tmp_path.rglob("*.jsonl"))
        assert client.post("/jobs", content=json.dumps(CASE), headers=LINES).status_code == 202


def test_bad_lines_are_named_and_nothing_is_begun(client: TestClient) -> None:
    lines = [
        json.dumps(CASE),
        "{",
        json.dumps({"question": "q", "options": {"A": ""}}),
        "[1]",
        "[" * 4900,
        '{"question": "\\ud800", "trace": "t"}',
    ]
    response = client.post("/jobs", content="\n".join(lines), headers=LINES)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == [
        "line 2", "line 3: options.A", "line 3: trace", "line 4", "line 5", "line 6: question",
    ]  # fmt: skip
    assert client.get("/jobs").json() == {"jobs": []}


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", LINES, 422),
        (b"\n \n", LINES, 422),
        (b"\xff\xfe", LINES, 422),
        (b"junk\n" * 1000, LINES, 422),
        (b"{", {"Content-Type": "application/json"}, 422),
        (b"\xff", {"Content-Type": "application/json"}, 400),
        (b"[" * 9000, {"Content-Type": "application/json"}, 400),
        (b'{"cases": []}', {"Content-Type": "text/plain"}, 415),
        (b'{"cases": []}', {}, 415),
    ],
)
def test_what_cannot_be_read_is_refused(
    client: TestClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    response = client.post("/jobs", content=content, headers=headers)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"


CASES = st.lists(
    st.fixed_dictionaries({"question": JSON_VALUES | st.just("q")}, optional={"trace": JSON_VALUES | st.just("t")}),
    max_size=3,
)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with service(tmp_path_factory.mktemp("state")) as client:
        yield client


@given(
    body=JSON_VALUES | st.fixed_dictionaries({"cases": JSON_VALUES | CASES}, optional={"seed": JSON_VALUES}),
    kind=st.sampled_from(["application/json", "application/x-ndjson"]),
    cut=st.integers(0, 40),
)
def test_no_body_makes_an_error_of_our_own(lasting: TestClient, body: object, kind: str, cut: int) -> None:
    for content in (json.dumps(body), json.dumps(body)[:cut]):
        response = lasting.post("/jobs", content=content.encode(), headers={"Content-Type": kind})
        assert response.status_code in (202, 400, 413, 422), response.text
        if response.status_code == 202:
            lasting.delete(f"{response.headers['location']}?forget=true")
