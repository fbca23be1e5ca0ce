"""`/retrieve` and `/get_observation` as the clients of trainers call them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic_core import from_json, to_json
from search_fakes import DIGEST, PASSAGES, WordRanker, search_app

from retrieval.local import LocalRetriever
from retrieval.passage import RetrievalError, UnavailableError
from retrieval.ranker import Ranking
from serve.retrieval_schemas import MAX_ACTION_CHARS, Retrieved
from serve.tool import NOTHING_FOUND

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(search_app(max_queries=5, max_topk=4, max_passages=16, max_body_bytes=200_000)) as client:
        yield client


@pytest.fixture(scope="module")
def roomy() -> Iterator[TestClient]:
    """A client of a service with the limits that it has by itself."""
    with TestClient(search_app()) as client:
        yield client


def result(client: TestClient, body: dict[str, Any]) -> list[list[Any]]:
    response = client.post("/retrieve", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["x-index-digest"] == DIGEST
    assert list(response.json()) == ["result"]
    found: list[list[Any]] = response.json()["result"]
    return found


# ---- what each client sends, and what it reads from the answer -------------------------------------------------------


def test_search_r1(client: TestClient) -> None:
    found = result(client, {"queries": ["warfarin", "heparin target"], "topk": 3, "return_scores": True})
    text = ""
    for number, hit in enumerate(found[1]):  # its `_passages2string`
        content = hit["document"]["contents"]
        title, rest = content.split("\n")[0], "\n".join(content.split("\n")[1:])
        text += f"Doc {number + 1}(Title: {title}) {rest}\n"
    assert text.startswith("Doc 1(Title: Heparin in short) heparin has target number 1")
    assert [len(hits) for hits in found] == [3, 3]
    assert [hit["score"] for hit in found[1]] == [2.0, 1.0, 1.0]


def test_verl_reads_the_same_dialect_without_a_topk(client: TestClient) -> None:
    found = result(client, {"queries": ["aspirin"], "return_scores": True})
    assert len(found[0]) == 3
    assert result(client, {"queries": ["aspirin"], "topk": None, "return_scores": True}) == found


def test_verl_tool_and_slime_read_the_document(client: TestClient) -> None:
    [[hit]] = result(client, {"queries": ["digoxin"], "topk": 1, "return_scores": True})
    passage = PASSAGES[3]
    assert hit["document"] == {**passage.model_dump(mode="json"), "contents": f"Digoxin in short\n{passage.text}"}
    assert isinstance(hit["score"], float)


def test_asearcher_takes_bare_documents(client: TestClient) -> None:
    for body in ({"return_scores": False}, {}):
        [[document]] = result(client, {"queries": ["digoxin"], "topk": 1, **body})
        assert document["id"] == "p3"
        assert {"id", "title", "text", "contents"} <= set(document)


def test_skyrl_sends_one_string(client: TestClient) -> None:
    [hits] = result(client, {"query": "insulin", "topk": 2, "return_scores": True})
    assert [hit["document"]["id"] for hit in hits] == ["p4", "p0"]


def test_unknown_fields_are_ignored_and_no_queries_are_no_results(client: TestClient) -> None:
    assert result(client, {"queries": [], "trajectory": 7}) == []


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        ({}, "body", "either `queries`"),
        ({"queries": ["a"], "query": "a"}, "body", "either `queries`"),
        ({"queries": "a"}, "queries", "list"),
        ({"queries": ["a", 7]}, "queries.1", "string"),
        ({"queries": ["a", None]}, "queries.1", "string"),
        ({"query": 7}, "query", "string"),
        ({"queries": ["a", " "]}, "queries.1", "empty"),
        ({"query": ""}, "query", "empty"),
        ({"queries": ["x" * 10_001]}, "queries.0", "10001 characters"),
        ({"query": "a", "topk": 0}, "topk", "greater than or equal to 1"),
        ({"query": "a", "topk": 5}, "topk", "at most 4"),
        ({"query": "a", "topk": 2.5}, "topk", "integer"),
        ({"query": "a", "deadline_s": 0}, "deadline_s", "greater than 0"),
        ([], "body", "object"),
    ],
)
def test_what_does_not_fit_is_named(client: TestClient, body: Any, field: str, expected: str) -> None:
    response = client.post("/retrieve", json=body)
    assert response.status_code == 422
    assert response.headers["content-type"] == PROBLEM
    assert response.headers["x-index-digest"] == DIGEST
    problem = response.json()
    assert problem["type"] == "urn:medverify:problem:invalid-request"
    assert [fault["field"] for fault in problem["errors"]] == [field]
    assert expected in problem["errors"][0]["expected"]
    assert "result" not in problem


def test_nan_and_broken_json(client: TestClient) -> None:
    for body in (b'{"query": NaN}', b'{"query": "a"', b"\xff\xfe", b'{"query": "\\ud800"}'):
        response = client.post("/retrieve", content=body)
        assert response.status_code == 422, body
        assert response.json()["errors"]


def test_too_much(client: TestClient) -> None:
    response = client.post("/retrieve", json={"queries": ["a"] * 6})
    assert response.status_code == 413
    assert response.json()["detail"] == "6 queries; at most 5 fit into one request"
    assert client.post("/retrieve", json={"query": "a" * 300_000}).status_code == 413
    assert client.post("/retrieve", json={"queries": ["a"] * 4, "topk": 4}).status_code == 200
    response = client.post("/retrieve", json={"queries": ["a"] * 5, "topk": 4})
    assert response.status_code == 413
    assert response.json()["detail"] == "5 queries with 4 passages each; at most 16 passages fit into one answer"


def test_an_error_of_the_ranker_is_an_error_and_not_an_empty_result(client: TestClient) -> None:
    response = client.post("/retrieve", json={"queries": ["warfarin", "outage"]})
    assert response.status_code == 500
    assert response.json()["type"] == "urn:medverify:problem:retrieval-failed"
    assert "result" not in response.json()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("/data/my index/x: no", "…/my index/x: no"),
        ("/srv/idx/vectors/00000.npy: gone; see http://a.b/c/d", "…/00000.npy: gone; see http://a.b/c/d"),
        ("OSError(5, '/srv/idx/passages.jsonl')", "OSError(5, '…/passages.jsonl')"),
        ("10 searches/s and/or more", "10 searches/s and/or more"),
    ],
)
def test_where_files_lie_is_for_the_log(message: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise UnavailableError(message)

    monkeypatch.setattr(LocalRetriever, "search_many", broken)
    with TestClient(search_app()) as client:
        assert client.post("/retrieve", json={"query": "a"}).json()["detail"] == told


def test_a_search_that_failed_is_explained_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RetrievalError("OSError(5, '/srv/idx/passages.jsonl')")

    monkeypatch.setattr(LocalRetriever, "search_many", broken)
    with TestClient(search_app()) as client:
        detail = client.post("/retrieve", json={"query": "a"}).json()["detail"]
    assert detail.startswith("the search failed; the service's log has the reason")
    assert "/srv/idx/passages.jsonl" in caplog.text


# ---- the tool server -------------------------------------------------------------------------------------------------


def observe(client: TestClient, *actions: str, **fields: Any) -> dict[str, Any]:
    body = {"trajectory_ids": [f"t{n}" for n in range(len(actions))], "actions": list(actions), **fields}
    response = client.post("/get_observation", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert answer.pop("processing_time_ms") >= 0
    return answer


def test_verl_tools_observation_is_what_the_judge_would_read(client: TestClient) -> None:
    answer = observe(
        client,
        "<think>I wonder about <search>heparin</search></think><search>digoxin</search>\n<search> warfarin </search>",
        extra_fields=[{}],
        finish=[False],
        is_last_step=[False],
    )
    [text] = answer["observations"]
    assert text.startswith(
        "\n<information>\n[1] Warfarin\nin short\nwarfarin has target number 0 é (/information)\n[2] "
    )
    assert text.endswith("</information>\n")
    assert text.count("</information>") == 1  # what a passage says cannot close the block
    assert (answer["dones"], answer["valids"]) == ([False], [True])


def test_actions_that_end_and_actions_that_cannot_be_run(client: TestClient) -> None:
    answer = observe(
        client,
        "<think>t</think><answer>1</answer>",
        "no tag at all",
        "<search>never closed",
        "<search>  </search>",
        "anything",
        extra_fields=[{}, {}, {}, {}, {"finish": True}],
    )
    assert answer["dones"] == [True, False, False, False, True]
    assert answer["valids"] == [True, False, False, False, True]
    assert answer["observations"][0] == answer["observations"][4] == ""
    reasons = [answer["observations"][n]["invalid_reason"] for n in (1, 2, 3)]
    assert ["no complete <search>" in reasons[0], "no complete" in reasons[1], "empty" in reasons[2]] == [True] * 3
    assert observe(client, "<search>warfarin</search>", finish=[True])["dones"] == [True]


def test_a_search_that_finds_nothing_is_no_observation() -> None:
    class Lexical(WordRanker):
        """Leaves out what shares no word, as bm25 does."""

        def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
            found = super().rank(queries, k)
            return [Ranking(r.rows[r.scores > 0], r.scores[r.scores > 0]) for r in found]

    with TestClient(search_app(Lexical())) as client:
        answer = observe(client, "<search>warfarin</search>", "<search>zebra</search>")
        assert answer["valids"] == [True, False]
        assert answer["observations"][1] == {"obs": "", "invalid_reason": NOTHING_FOUND}
        assert result(client, {"queries": ["zebra"]}) == [[]]


def test_an_outage_is_not_an_observation(client: TestClient) -> None:
    body = {"trajectory_ids": ["a", "b"], "actions": ["<search>outage</search>", "<search>warfarin</search>"]}
    response = client.post("/get_observation", json=body)
    assert response.status_code == 500
    assert "observations" not in response.json()


def test_lists_of_different_lengths(client: TestClient) -> None:
    response = client.post("/get_observation", json={"trajectory_ids": ["a"], "actions": ["x", "y"]})
    assert response.status_code == 422
    assert "actions has 2 entries" in response.json()["detail"]


@pytest.mark.parametrize("piece", ["<", "<search>", "<searc", "<search></search>"])
def test_an_action_that_is_no_turn_is_refused_unread(roomy: TestClient, piece: str) -> None:
    hostile = piece * (7_800_000 // len(piece))
    response = roomy.post("/get_observation", json={"trajectory_ids": ["a", "b"], "actions": ["x", hostile]})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "actions.1"
    assert len(response.content) < 1000
    whole = piece * (MAX_ACTION_CHARS // len(piece))
    response = roomy.post("/get_observation", json={"trajectory_ids": ["a"], "actions": [whole]})
    assert response.json()["valids"] == [False]


def test_many_long_actions_are_read_in_order(roomy: TestClient) -> None:
    """More text than is read between two other requests."""
    actions = [f"{'<' * 150_000}<search>{drug}</search>" for drug in ("warfarin", "heparin", "aspirin", "insulin")]
    body = {"trajectory_ids": list("abcd"), "actions": actions, "finish": [False, True, False, False]}
    reply = roomy.post("/get_observation", json=body).json()
    assert reply["dones"] == [False, True, False, False]
    found = [bool(text) and text.split("[1] ")[1].split()[0] for text in reply["observations"]]
    assert found == ["Warfarin", False, "Aspirin", "Insulin"]


# ---- for operators ---------------------------------------------------------------------------------------------------


def test_info(client: TestClient) -> None:
    info = client.get("/info").json()
    assert info == {"digest": DIGEST, "profile": "words", "rows": 5, "manifest": {}, "version": "1.2.3"}


def test_metrics_count_every_stage() -> None:
    with TestClient(search_app()) as client:
        for _ in range(2):
            client.post("/retrieve", json={"queries": ["warfarin", "heparin"]})
        client.post("/retrieve", json={"queries": ["outage"]})
        client.post("/retrieve", json={})
        client.get("/nowhere")
        response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = response.text.splitlines()
    for line in (
        "medverify_retrieval_searches_total 5.0",
        "medverify_retrieval_cached_total 2.0",
        "medverify_retrieval_failed_total 1.0",
        "medverify_retrieval_waiting 0.0",
        'medverify_retrieval_batch_size_bucket{le="2"} 2.0',
        'medverify_retrieval_stage_seconds_count{stage="queue"} 3.0',
        'medverify_retrieval_stage_seconds_count{stage="rank"} 1.0',
        'medverify_http_answers_total{path="/retrieve",status="200"} 2.0',
        'medverify_http_answers_total{path="/retrieve",status="500"} 1.0',
        'medverify_http_answers_total{path="/retrieve",status="422"} 1.0',
        'medverify_http_answers_total{path="other",status="404"} 1.0',
    ):
        assert line in lines, line
    assert f'medverify_index_info{{digest="{DIGEST}",profile="words"}} 1.0' in lines


def test_an_error_that_nobody_foresaw_is_labelled_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LocalRetriever, "search_many", broken)
    with TestClient(search_app(), raise_server_exceptions=False) as client:
        response = client.post("/retrieve", json={"query": "warfarin"})
        assert response.status_code == 500
        assert response.headers["x-index-digest"] == DIGEST
        assert response.json()["type"] == "urn:medverify:problem:internal"
        assert 'answers_total{path="/retrieve",status="500"} 1.0' in client.get("/metrics").text


def test_the_description_has_examples_that_work(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    for path in ("/retrieve", "/get_observation"):
        route = description["paths"][path]["post"]
        assert {"413", "422", "500", "503"} <= set(route["responses"])
        [media] = route["requestBody"]["content"].values()
        for example in media["schema"]["examples"]:
            assert client.post(path, json=example).status_code == 200
    assert set(description["paths"]["/ready"]["get"]["responses"]) == {"200", "503"}


@pytest.mark.parametrize("scores", [True, False])
def test_answers_are_as_described(client: TestClient, scores: bool) -> None:
    description = client.get("/openapi.json").json()
    [media] = description["paths"]["/retrieve"]["post"]["responses"]["200"]["content"].values()
    assert media["schema"] == {"$ref": "#/components/schemas/Retrieved"}
    assert set(description["components"]["schemas"]["Retrieved"]["properties"]) == {"result", "partial", "missing_rows"}
    body = client.post("/retrieve", json={"query": "warfarin", "return_scores": scores}).content
    assert to_json(Retrieved.model_validate_json(body).model_dump(exclude_none=True)) == to_json(
        {"result": [[without_nulls(hit) for hit in hits] for hits in from_json(body)["result"]]}
    )


def without_nulls(value: Any) -> Any:
    return {k: without_nulls(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def test_the_documented_example_has_the_fields_that_are_sent(client: TestClient, repository: Path) -> None:
    page = (repository / "docs/retrieval.md").read_text()
    example = page.split('{"result": [[{"document": {')[1].split("}")[0]
    [[hit]] = result(client, {"query": "warfarin", "topk": 1, "return_scores": True})
    assert re.findall(r'"(\w+)":', example) == list(hit["document"])
