"""Choosing among candidates with the real small judge: what order they come in changes not a bit of what it believes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from configs.load import load_settings
from serve.app import create_app
from serve.cache import JudgmentCache
from serve.schemas import Info
from serve.stores import Stores

pytestmark = pytest.mark.usefixtures("real_models")

QUICK = (
    "judge.guided.think_tokens=4", "judge.guided.query_tokens=4", "judge.guided.max_searches=1", "judge.top_k=1",
)  # fmt: skip
QUESTION = "What does warfarin inhibit?"
OPTIONS = {"A": "Vitamin K epoxide reductase", "B": "Thrombin"}
TRACES = [
    "Warfarin blocks the recycling of vitamin K. The answer is A.",
    "Bleeding is its main danger, so it must inhibit thrombin directly, as dabigatran does. The answer is B.",
    "The answer is A.",
]
Service = Callable[..., AbstractContextManager[TestClient]]


@pytest.fixture
def service(environment: dict[str, str]) -> Service:
    @contextmanager
    def _service(*overrides: str, stores: Stores | None = None) -> Iterator[TestClient]:
        from medverify.assemble import load_judge

        cache = environment["MEDVERIFY_PATHS__CACHE"]
        settings = load_settings(None, {}, [f"paths.cache={cache}", *QUICK, *overrides]).settings
        judge = load_judge(settings)
        info = Info(
            judge_id=judge.judge_id,
            model=settings.judge.model,
            mode=judge.mode,
            engine=judge.engine.describe(),
            prompt=judge.prompt.name,
            prompt_digest=judge.prompt.digest,
            index_digest=judge.retriever.digest,
            version="0",
            quality=[],
        )
        with TestClient(create_app(judge, settings.serve, info, stores)) as client:
            yield client

    return _service


def orders() -> list[list[str]]:
    every = list(permutations([*TRACES, TRACES[0]]))  # one of them twice
    return [list(every[place]) for place in (0, 10, 23)]


def selection(client: TestClient, traces: list[str]) -> tuple[dict[str, set[float]], str, list[tuple[str, float]]]:
    """What is believed of each trace, the trace that is chosen, and the votes."""
    candidates = [{"trace": trace} for trace in traces]
    body = {"question": QUESTION, "options": OPTIONS, "candidates": candidates, "strategy": "soft"}
    reply: dict[str, Any] = client.post("/select", json=body).json()
    assert {judgment["status"] for judgment in reply["judgments"]} == {"scored"}
    p = {trace: set[float]() for trace in TRACES}
    for trace, judgment in zip(traces, reply["judgments"], strict=True):
        p[trace].add(judgment["p_correct"])
    return p, traces[reply["chosen"]], [(vote["answer"], vote["weight"]) for vote in reply["votes"]]


def ranking(client: TestClient, traces: list[str]) -> list[tuple[str, float]]:
    reply = client.post("/v1/rerank", json={"query": QUESTION, "documents": traces}).json()
    return [(traces[result["index"]], result["relevance_score"]) for result in reply["results"]]


def test_judged_one_at_a_time_order_changes_not_a_bit(service: Service) -> None:
    """Nothing shares a batch, and nothing is remembered: each request is judged anew."""
    with service("judge.transformers.max_sequences=1") as client:
        first, *others = [selection(client, traces) for traces in orders()]
        assert all(len(p) == 1 for p in first[0].values())
        assert len({p for found in first[0].values() for p in found}) > 1  # it tells traces apart
        assert all(other == first for other in others)

        first_ranking, *other_rankings = [ranking(client, traces) for traces in orders()[:2]]
        assert all(other == first_ranking for other in other_rankings)
        scores = [score for _, score in first_ranking]
        assert scores == sorted(scores, reverse=True)


def test_judged_together_and_remembered_order_changes_not_a_bit(service: Service, tmp_path: Path) -> None:
    cache = JudgmentCache(tmp_path / "judgments.sqlite", max_rows=100, max_bytes=10_000_000, max_age_days=1)
    with service(stores=Stores(cache=cache)) as client:
        first, *others = [selection(client, traces) for traces in orders()]
        assert all(len(p) == 1 for p in first[0].values())
        assert all(other == first for other in others)
