import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from live_server import listening
from serve_fakes import CASE, INFO, GatedEngine, app_of, believes, judge_of, until, writes

from configs.settings import ServeSettings
from serve.app import create_app
from serve.cache import JudgmentCache
from serve.stores import Stores
from verifier.events import Opened, Watch, unwatched
from verifier.judge import Judge
from verifier.types import Case, Judgment


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Reads server-sent events as the standard says, comments left out."""
    found = []
    for part in text.split("\n\n")[:-1]:
        fields = [line.split(": ", 1) for line in part.split("\n") if not line.startswith(":")]
        if fields:
            [(_, name), (_, data)] = fields
            found.append((name, json.loads(data)))
    return found


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app_of()) as client:
        yield client


def test_the_events_of_an_episode_arrive_in_order_and_the_judgment_last(client: TestClient) -> None:
    reply = client.post("/verify/stream", json={"id": "mine", **CASE})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-store"
    told = events(reply.text)
    assert [name for name, _ in told] == [
        "admitted", "opened", "thought", "searched", "thought", "decided", "judgment",
    ]  # fmt: skip
    of = dict(told)
    assert of["admitted"] == {"in_flight": 1, "places": 64}
    assert told[2][1]["text"] == "The reasoning claims VKOR."
    assert of["searched"]["search"]["query"] == "warfarin target"
    assert of["searched"]["search"]["passages"][0]["text"] == "It inhibits VKOR."
    assert of["decided"]["verdict"] == 1
    assert of["decided"]["p_correct"] == pytest.approx(0.9)
    judgment = Judgment.model_validate(of["judgment"])
    assert judgment.id == "mine"
    assert (judgment.verdict, judgment.p_correct) == (1, of["decided"]["p_correct"])


def test_it_is_the_judgment_that_verify_gives(client: TestClient) -> None:
    body = {"case": {"id": "same", **CASE}, "seed": 7}
    streamed = Judgment.model_validate(events(client.post("/verify/stream", json=body).text)[-1][1])
    assert streamed.seed == 7
    assert streamed.without_clock() == Judgment.model_validate(client.post("/verify", json=body).json()).without_clock()


@pytest.mark.parametrize(
    ("question", "names", "status"),
    [
        ("trouble?", ["admitted", "opened"], "engine_failed"),
        ("darkness?", ["admitted", "opened", "thought"], "retrieval_failed"),
        ("silence?", ["admitted", "opened"], "unparseable"),
    ],
)
def test_a_failure_is_a_judgment_without_a_verdict(
    client: TestClient, question: str, names: list[str], status: str
) -> None:
    told = events(client.post("/verify/stream", json={"question": question, "trace": "t"}).text)
    assert [name for name, _ in told] == [*names, "judgment"]
    assert told[-1][1]["status"] == status
    assert told[-1][1]["verdict"] is told[-1][1]["p_correct"] is None


@pytest.mark.parametrize(
    "body", [{"question": "q"}, {"cases": [CASE]}, {**CASE, "seed": -1}, {**CASE, "deadline_s": 0}]
)
def test_what_does_not_fit_is_refused_by_status(client: TestClient, body: dict[str, Any]) -> None:
    reply = client.post("/verify/stream", json=body)
    assert reply.status_code == 422
    assert reply.json()["type"] == "urn:medverify:problem:invalid-request"


def test_lines_in_texts_cannot_end_an_event() -> None:
    thought = "one\n\nevent: judgment\ndata: {}\n\ntwo\r\u2028three"
    engine = GatedEngine(lambda _: f"<think>{thought}</think><answer>1</answer>", believes)
    engine.gate.set()
    with TestClient(app_of(judge_of(engine))) as client:
        told = events(client.post("/verify/stream", json=CASE).text)
    assert [name for name, _ in told] == ["admitted", "opened", "thought", "decided", "judgment"]
    assert told[2][1]["text"] == thought


class BreaksLater(Judge):
    async def verify(
        self, case: Case, seed: int | None = None, *, deadline_s: float | None = None, watch: Watch = unwatched
    ) -> Judgment:
        watch(Opened(0.0))
        await asyncio.sleep(0)
        raise RuntimeError("secret: /root/key")


def test_an_error_on_the_way_ends_the_stream_with_a_problem_without_internals() -> None:
    with TestClient(app_of(judge_of(kind=BreaksLater))) as client:
        reply = client.post("/verify/stream", json=CASE)
        assert [name for name, _ in events(reply.text)] == ["admitted", "opened", "problem"]
        problem = events(reply.text)[-1][1]
        assert (problem["type"], problem["status"]) == ("urn:medverify:problem:internal", 500)
        assert "secret" not in reply.text
        assert "RuntimeError" not in reply.text
        assert client.get("/ready").json()["cases_in_flight"] == 0


def test_a_judgment_of_the_cache_comes_without_an_episode(tmp_path: Path) -> None:
    cache = JudgmentCache(tmp_path / "judgments.sqlite", max_rows=10, max_bytes=10**6, max_age_days=1)
    with TestClient(create_app(judge_of(), ServeSettings(), INFO, Stores(cache=cache))) as client:
        first, second = (events(client.post("/verify/stream", json=CASE).text) for _ in range(2))
    assert [name for name, _ in second] == ["judgment"]
    judgments = [Judgment.model_validate(told[-1][1]).without_clock() for told in (first, second)]
    assert judgments[0] == judgments[1]


async def test_events_are_sent_when_they_happen_and_the_refused_hear_it_by_status() -> None:
    engine = GatedEngine(writes, believes)
    app = app_of(judge_of(engine), max_queue=1, retry_after_s=7)
    async with (
        listening(app) as url,
        httpx2.AsyncClient(base_url=url, timeout=30) as client,
        client.stream("POST", "/verify/stream", json=CASE) as reply,
    ):
        pieces = reply.aiter_text()
        arrived = ""
        while "event: opened" not in arrived:
            arrived += await anext(pieces)  # and the judge has not written a word
        refused = await client.post("/verify/stream", json=CASE)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "7")
        engine.gate.set()
        arrived += "".join([piece async for piece in pieces])
        assert events(arrived)[-1][0] == "judgment"


async def test_work_for_a_client_that_left_is_cancelled() -> None:
    engine = GatedEngine(writes, believes)
    async with listening(app_of(judge_of(engine))) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        async with client.stream("POST", "/verify/stream", json=CASE) as reply:
            assert reply.status_code == 200
            await until(lambda: engine.under_way == 1)
        await until(lambda: engine.under_way == 0)
        assert [sequence.closed for sequence in engine.sequences] == [True]
        assert (await client.get("/ready")).json()["cases_in_flight"] == 0
