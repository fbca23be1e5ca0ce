from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serve_fakes import CASE, app_of, judge_of, open_engine

from serve.schemas import Judgments
from verifier.types import Case, Judgment

JSON = {"Content-Type": "application/json"}
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app_of(max_batch=5, max_body_bytes=5000)) as client:
        yield client


def problem_of(response: Any, status: int, kind: str) -> dict[str, Any]:
    """The body of an error, which has one shape for all of them."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:medverify:problem:{kind}"
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert "verdict" not in body
    assert "p_correct" not in body
    return body


# ---- one case --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "id"),
    [
        pytest.param(CASE, "0", id="flat"),
        pytest.param({"id": "x", **CASE}, "x", id="flat with an id"),
        pytest.param({"case": CASE}, "0", id="nested"),
        pytest.param({"case": {"id": "x", **CASE}}, "x", id="nested with an id"),
        pytest.param(
            {"id": "x", "question": {"text": CASE["question"], "options": None}, "trace": {"steps": CASE["trace"]}},
            "x",
            id="long form",
        ),
    ],
)
def test_one_case_in_every_form(client: TestClient, body: dict[str, Any], id: str) -> None:
    response = client.post("/verify", json=body)
    assert response.status_code == 200
    judgment = Judgment.model_validate(response.json())
    assert judgment.id == id
    assert judgment.verdict == 1
    assert judgment.p_correct == pytest.approx(0.9)
    assert judgment.label_mass == pytest.approx(0.8)
    assert judgment.case_digest == Case.model_validate({"id": "any", **CASE}).digest
    assert judgment.searches[0].query == "warfarin target"
    assert judgment.searches[0].passages[0].title == "Warfarin"
    assert judgment.latency_ms is not None


def test_options_reach_the_judge(client: TestClient) -> None:
    with_options = {**CASE, "options": {"A": "VKOR", "B": "Thrombin"}}
    judgment = Judgment.model_validate(client.post("/verify", json=with_options).json())
    assert judgment.case_digest == Case.model_validate({"id": "0", **with_options}).digest


@pytest.mark.parametrize("body", [{**CASE}, {"case": CASE}, {"cases": [CASE, CASE]}])
def test_a_seed_overrides_the_services_own(body: dict[str, Any]) -> None:
    engine = open_engine()
    with TestClient(app_of(judge_of(engine))) as client:
        found = client.post("/verify", json={**body, "seed": 41}).json()
        assert {judgment["seed"] for judgment in found.get("judgments", [found])} == {41}
        assert {request.seed for request in engine.requests} == {41}
        found = client.post("/verify", json=body).json()
        assert {judgment["seed"] for judgment in found.get("judgments", [found])} == {0}


# ---- several cases ---------------------------------------------------------------------------------------------------


def test_many_cases_keep_their_order_and_get_their_positions_as_ids(client: TestClient) -> None:
    cases = [CASE, {"id": "b", **CASE}, CASE, {"id": "a", **CASE}]
    response = client.post("/verify", json={"cases": cases})
    assert response.status_code == 200
    judgments = Judgments.model_validate(response.json()).judgments
    assert [judgment.id for judgment in judgments] == ["0", "b", "2", "a"]


def test_a_case_that_fails_takes_no_other_with_it(client: TestClient) -> None:
    cases = [CASE, {**CASE, "question": "trouble"}, {**CASE, "question": "darkness"}, CASE]
    response = client.post("/verify", json={"cases": cases})
    assert response.status_code == 200
    judgments = response.json()["judgments"]
    statuses = [judgment["status"] for judgment in judgments]
    assert statuses == ["scored", "engine_failed", "retrieval_failed", "scored"]
    assert judgments[1]["detail"].startswith(
        "the judge's engine failed; the service's log has the reason, under request "
    )


@pytest.mark.parametrize(
    ("question", "status"),
    [("trouble", "engine_failed"), ("darkness", "retrieval_failed"), ("silence", "unparseable"), ("slow", "timeout")],
)
def test_a_failure_is_never_a_number(question: str, status: str) -> None:
    judge = judge_of(open_engine(delay_s=5), deadline_s=0.05) if question == "slow" else judge_of()
    with TestClient(app_of(judge)) as client:
        response = client.post("/verify", json={**CASE, "question": question})
    assert response.status_code == 200
    judgment = response.json()
    assert judgment["status"] == status
    assert judgment["verdict"] is None
    assert judgment["p_correct"] is None
    assert judgment["label_mass"] is None
    assert judgment["detail"] or status == "unparseable"


# ---- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["question", "trace"]),
        ({"question": "q"}, ["trace"]),
        ({"question": "", "trace": "t"}, ["question"]),
        ({"question": 5, "trace": "t"}, ["question"]),
        ({"question": "q", "trace": []}, ["trace"]),
        ({"question": "q", "trace": ["t", None]}, ["trace.1"]),
        ({"question": "q", "trace": "t", "id": 5}, ["id"]),
        ({"question": "q", "trace": "t", "options": {"A": ""}}, ["options.A"]),
        ({"question": "q", "trace": "t", "options": {"one": ""}}, ["options.one"]),
        ({"question": "q", "trace": "t", "trase": "t"}, ["trase"]),
        ({"question": "q", "trace": "t", "body": "t"}, ["body"]),
        ({"question": "q", "trace": "t", "seed": -1}, ["seed"]),
        ({"question": "q", "trace": "t", "seed": 2**31}, ["seed"]),
        ({"question": "q", "trace": "t", "seed": "x"}, ["seed"]),
        ({"case": {"question": "q"}}, ["case.trace"]),
        ({"case": {"question": "q", "trace": "t", "many": 1}}, ["case.many"]),
        ({"case": {"question": "q", "trace": "t"}, "extra": 1}, ["extra"]),
        ({"case": "q"}, ["case"]),
        ({"cases": []}, ["cases"]),
        ({"cases": "q"}, ["cases"]),
        ({"cases": None}, ["cases"]),
        ({"cases": [CASE, {"question": "q"}]}, ["cases.1.trace"]),
        ({"cases": [CASE, {**CASE, "trase": 1, "tr": 1}, 5]}, ["cases.1.trase", "cases.1.tr"]),
        ({"cases": [CASE], "case": CASE}, ["case"]),
        ({"cases": [CASE], "extra": 1}, ["extra"]),
        ([CASE], ["body"]),
        ("text", ["body"]),
        (None, ["body"]),
    ],
)
def test_the_field_is_named_as_it_was_sent(client: TestClient, body: object, fields: list[str]) -> None:
    problem = problem_of(client.post("/verify", json=body), 422, "invalid-request")
    assert [fault["field"] for fault in problem["errors"]] == fields
    assert all(fault["expected"] for fault in problem["errors"])
    assert all(field in problem["detail"] for field in fields)


@pytest.mark.parametrize(
    ("content", "headers", "detail"),
    [
        (b'{"question": ', JSON, "body: JSON; at character 13: Expecting value"),
        (b"question=q&trace=t", JSON, "body: JSON; at character 0"),
        (b"", JSON, "body: Field required"),
        (b"", {}, "body: Field required"),
        (b'{"question": "q", "trace": "t"}', {"Content-Type": "text/plain"}, "Content-Type: application/json"),
        (b'{"question": "q", "trace": "t"}', {}, "Content-Type: application/json"),
        (b"x", {"Content-Type": "application/x-www-form-urlencoded"}, "Content-Type: application/json"),
        (b'{"question": "q", "trace": "t", "seed": NaN}', JSON, "seed"),
        (b'{"question": "\\ud800", "trace": "t"}', JSON, "question"),
        (b'{"question": "q", "trace": "t", "\\ud800": 1}', JSON, ""),
        (b'{"question": "q", "trace": "t", "options": {"\\ud800": ""}}', JSON, "options"),
    ],
)
def test_what_is_no_json_is_told_so(client: TestClient, content: bytes, headers: dict[str, str], detail: str) -> None:
    problem = problem_of(client.post("/verify", content=content, headers=headers), 422, "invalid-request")
    assert detail in problem["detail"]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b'{"question": "\xff"}'])
def test_what_is_no_text_is_refused(client: TestClient, content: bytes) -> None:
    problem_of(client.post("/verify", content=content, headers=JSON), 400, "http")


def test_nesting_without_end_is_refused(client: TestClient) -> None:
    response = client.post("/verify", content=b"[" * 4900, headers=JSON)
    assert response.status_code in (400, 422)  # how deep Python reads differs from version to version
    assert response.headers["content-type"] == PROBLEM


def test_what_was_sent_is_not_sent_back(client: TestClient) -> None:
    """Questions may be about patients; errors end up in logs."""
    response = client.post("/verify", json={"question": "Mrs Miller, 54", "trace": 5})
    assert "Miller" not in response.text


# ---- what is too large -----------------------------------------------------------------------------------------------


def test_a_batch_that_is_too_large_is_refused(client: TestClient) -> None:
    assert client.post("/verify", json={"cases": [CASE] * 5}).status_code == 200
    problem = problem_of(client.post("/verify", json={"cases": [CASE] * 6}), 413, "batch-too-large")
    assert problem["detail"] == "6 cases; at most 5 fit into one request"


def test_a_batch_that_would_never_fit_into_the_queue_is_not_told_to_come_back() -> None:
    with TestClient(app_of(max_batch=100, max_queue=2)) as client:
        assert client.post("/verify", json={"cases": [CASE] * 2}).status_code == 200
        problem_of(client.post("/verify", json={"cases": [CASE] * 3}), 413, "batch-too-large")


def test_a_body_that_is_too_large_is_refused_with_or_without_a_length(client: TestClient) -> None:
    start, end = b'{"question": "q", "trace": "', b'"}'
    for size, status in ((5000, 200), (5001, 413), (500_000, 413)):
        filler = b"x" * (size - len(start) - len(end))
        announced = client.post("/verify", content=start + filler + end, headers=JSON)
        streamed = client.post("/verify", content=iter([start, filler, end]), headers=JSON)
        assert "content-length" in announced.request.headers
        assert "content-length" not in streamed.request.headers
        assert announced.status_code == streamed.status_code == status
        if status == 413:
            assert problem_of(announced, 413, "body-too-large") == problem_of(streamed, 413, "body-too-large")


def test_a_large_body_of_another_route_is_refused_as_well(client: TestClient) -> None:
    problem_of(client.post("/health", content=b"x" * 6000), 413, "body-too-large")
