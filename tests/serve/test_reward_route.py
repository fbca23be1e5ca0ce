"""`POST /reward`: what each part is, what is asked for it, and what a failure looks like."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from reward_fakes import HOLDS, ITEM, KEYS, RIGHT, TRACE, about_coherence, rewarding_app, rewarding_engine
from serve_fakes import judge_of

from configs.settings import PathSettings, ServeSettings, Settings
from serve.callers import Caller
from serve.errors import ServiceError
from serve.judging import JudgingService
from serve.reward_schemas import Reward, RewardRequest, Rewards
from serve.stores import Asked, Stores
from verifier.coherence import coherence_judge
from verifier.types import Case

JUDGED = "<think>Every step is right.</think><answer>1</answer>"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(rewarding_app(max_batch=8, max_queue=8)) as client:
        yield client


def rewards_of(client: TestClient, *items: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    response = client.post("/reward", json={"items": list(items), **more})
    assert response.status_code == 200, response.text
    body = response.json()
    assert body["version"] == "1"
    for reward in body["rewards"]:
        assert list(reward["components"]) == KEYS
        assert list(reward) == list(Reward.model_fields)
        assert (reward["status"] == "scored") == (reward["reward"] is not None)
    found: list[dict[str, Any]] = Rewards.model_validate(body).model_dump(mode="json")["rewards"]
    return found


def refused(client: TestClient, body: dict[str, Any], status: int = 422) -> dict[str, Any]:
    response = client.post("/reward", json=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert "rewards" not in response.json()
    problem: dict[str, Any] = response.json()
    return problem


# ---- traces ----------------------------------------------------------------------------------------------------------


def test_a_trace_gets_the_gyms_weights_over_these_parts(client: TestClient) -> None:
    [reward] = rewards_of(client, {**ITEM, "label": "A"})
    assert reward["components"] == {
        "accuracy": pytest.approx(RIGHT),
        "verifier": pytest.approx(RIGHT),
        "label_match": 1.0,
        "coherence": pytest.approx(HOLDS),
        "format": 1.0,
    }
    assert reward["reward"] == pytest.approx((0.25 * RIGHT + 0.10 * HOLDS + 0.10) / 0.45)
    assert reward["id"] == "0"
    assert len(reward["judge_id"]) == len(reward["coherence_judge_id"]) == 64
    assert reward["judge_id"] != reward["coherence_judge_id"]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"accuracy": 1}, RIGHT),
        ({"accuracy": 7}, RIGHT),
        ({"coherence": 0.1}, HOLDS),
        ({"format": 1}, 1.0),
        ({"accuracy": 3, "coherence": 1}, (3 * RIGHT + HOLDS) / 4),
        ({"accuracy": 1, "coherence": 0, "format": 1}, (RIGHT + 1) / 2),
        (None, (0.25 * RIGHT + 0.10 * HOLDS + 0.10) / 0.45),
    ],
)
def test_weights_are_divided_by_their_sum(client: TestClient, weights: Any, expected: float) -> None:
    [reward] = rewards_of(client, ITEM, weights=weights)
    assert reward["reward"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("asked", "correctness", "coherence"),
    [
        ({}, 1, 1),
        ({"weights": {"accuracy": 1}}, 1, 0),
        ({"weights": {"coherence": 1}}, 0, 1),
        ({"weights": {"format": 1}}, 0, 0),
        ({"weights": {"accuracy": 1}, "accuracy": "label"}, 0, 0),
        ({"accuracy": "label"}, 0, 1),
    ],
)
def test_only_what_counts_is_judged(asked: dict[str, Any], correctness: int, coherence: int) -> None:
    engine = rewarding_engine()
    with TestClient(rewarding_app(engine)) as client:
        [reward] = rewards_of(client, {**ITEM, "label": "B"}, **asked)
    prompts = {engine.tokenizer.decode(request.ids).split("<think>Each")[0] for request in engine.requests}
    assert any(map(about_coherence, prompts)) == bool(coherence)
    assert (not all(map(about_coherence, prompts))) == bool(correctness)
    assert (reward["judge_id"] is not None) == bool(correctness)
    assert (reward["coherence_judge_id"] is not None) == bool(coherence)
    assert reward["components"]["label_match"] == 0.0


def test_coherence_is_judged_without_a_search() -> None:
    engine = rewarding_engine()
    with TestClient(rewarding_app(engine)) as client:
        rewards_of(client, ITEM, weights={"coherence": 1})
    [request] = engine.requests  # thinking and verdict in one turn
    assert about_coherence(engine.tokenizer.decode(request.ids))


@pytest.mark.parametrize(
    ("trace", "label", "match", "form"),
    [
        (TRACE, "A", 1.0, 1.0),
        (TRACE, "vitamin k epoxide reductase", 1.0, 1.0),
        (TRACE, "B", 0.0, 1.0),
        (TRACE, None, None, 1.0),
        ("I cannot say.", "A", 0.0, 0.0),
        (["It is one of two.", "The answer is B."], "B", 1.0, 1.0),
    ],
)
def test_the_label_and_the_format(client: TestClient, trace: Any, label: Any, match: Any, form: float) -> None:
    [reward] = rewards_of(client, {**ITEM, "trace": trace, "label": label}, weights={"format": 1})
    assert reward["components"]["label_match"] == match
    assert reward["reward"] == reward["components"]["format"] == form


def test_options_may_stand_in_the_question(client: TestClient) -> None:
    question = "What does warfarin inhibit?\nA. VKOR\nB. Thrombin"
    item = {"question": question, "trace": "So the answer is B, thrombin."}
    found = rewards_of(client, {**item, "label": "B"}, {**item, "label": "Thrombin"}, accuracy="label")
    assert [reward["components"]["label_match"] for reward in found] == [1.0, 1.0]


def test_accuracy_by_the_label(client: TestClient) -> None:
    asked = {"accuracy": "label", "weights": {"accuracy": 1}}
    labels = ["A", "B", None, "warfarin"]
    found = rewards_of(client, *({**ITEM, "label": label} for label in labels), **asked)
    assert [reward["reward"] for reward in found] == [1.0, 0.0, None, None]
    assert [reward["status"] for reward in found] == ["scored", "scored", "no_label", "no_label"]
    assert found[2]["detail"] == "accuracy by label needs one"
    assert found[3]["detail"] == "the label is none of the options"


def test_ids_and_seeds_are_each_items_own() -> None:
    engine = rewarding_engine()
    with TestClient(rewarding_app(engine)) as client:
        found = rewards_of(client, ITEM, {**ITEM, "id": "x", "seed": 5}, {"case": ITEM, "seed": 5}, seed=3)
    assert [reward["id"] for reward in found] == ["0", "x", "2"]
    assert {request.seed for request in engine.requests} == {3, 5}


# ---- policies that judge ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "label", "correct", "form"),
    [
        (JUDGED, 1, 1.0, 1.0),
        (JUDGED, 0, 0.0, 1.0),
        ("<answer>1</answer>", 1, 1.0, 0.0),
        ("<think>t</think><answer>0</answer><answer>1</answer>", 1, 1.0, 1.0),  # the last one counts
        ("<think>t</think><answer>1</answer><answer>0</answer>", 1, 0.0, 1.0),
        ("<think>t</think>" + "<answer>0</answer>" * 9 + "<answer>1</answer>", 1, 1.0, 1.0),
        ("<think>t</think>" + "<answer>0</answer>" * 10 + "<answer>1</answer>", 1, 1.0, 0.25),
        ("<think>t</think><answer>7</answer>", 1, 0.0, 0.0),
        ("<think>the verdict <answer>1</answer> is tempting</think><answer>0</answer>", 1, 0.0, 0.0),
        ("", 0, 0.0, 0.0),
    ],
)
def test_a_policy_that_judges(client: TestClient, response: str, label: int, correct: float, form: float) -> None:
    item = {"kind": "judge", "response": response, "label": label}
    [reward] = rewards_of(client, item, weights={"coherence": 1})
    assert reward["reward"] == correct * form
    assert reward["judge_id"] is None
    assert reward["components"] == {
        "accuracy": correct,
        "verifier": None,
        "label_match": correct,
        "coherence": None,
        "format": form,
    }


# ---- not judged ------------------------------------------------------------------------------------------------------


def test_one_batch_with_every_outcome(client: TestClient) -> None:
    found = rewards_of(
        client,
        ITEM,
        {**ITEM, "question": "trouble"},
        {**ITEM, "question": "darkness"},
        {**ITEM, "question": "silence"},
        {"kind": "judge", "id": "j", "response": JUDGED, "label": 1},
        weights={"accuracy": 1},
    )
    statuses = [reward["status"] for reward in found]
    assert statuses == ["scored", "engine_failed", "retrieval_failed", "unparseable", "scored"]
    assert [reward["reward"] for reward in found] == [pytest.approx(RIGHT), None, None, None, 1.0]
    assert found[1]["detail"].startswith("correctness was not judged: the judge's engine failed; ")
    for reward in found[1:4]:
        assert reward["components"]["accuracy"] is reward["components"]["verifier"] is None


def test_coherence_that_was_not_judged_takes_the_reward_with_it(client: TestClient) -> None:
    [reward] = rewards_of(client, {**ITEM, "trace": "A jumble. The answer is A."})
    assert (reward["status"], reward["reward"]) == ("engine_failed", None)
    assert reward["detail"].startswith("coherence was not judged: the judge's engine failed; ")
    assert reward["components"]["coherence"] is None
    assert reward["components"]["verifier"] == pytest.approx(RIGHT)


def test_the_deadline_of_a_request_is_kept() -> None:
    with TestClient(rewarding_app(rewarding_engine(delay_s=5))) as client:
        [reward] = rewards_of(client, ITEM, deadline_s=0.05)
    assert (reward["status"], reward["reward"]) == ("timeout", None)


def test_a_full_service_rewards_nothing() -> None:
    with TestClient(rewarding_app(max_queue=3)) as client:
        problem = refused(client, {"items": [ITEM, ITEM]}, 413)
        assert problem["detail"] == "2 items, 4 questions to the judge; at most 3 fit into one request"
        assert len(rewards_of(client, ITEM, ITEM, weights={"accuracy": 1})) == 2


def test_without_a_judge_of_coherence_it_has_no_weight() -> None:
    with TestClient(rewarding_app(coherence=False)) as client:
        problem = refused(client, {"items": [ITEM]})
        assert [fault["field"] for fault in problem["errors"]] == ["weights.coherence"]
        assert rewards_of(client, ITEM, weights={"accuracy": 1})[0]["reward"] == pytest.approx(RIGHT)


# ---- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["items"]),
        ({"items": []}, ["items"]),
        ({"items": [{}]}, ["items.0.question", "items.0.trace"]),
        ({"items": [{**ITEM, "question": ""}]}, ["items.0.question"]),
        ({"items": [{**ITEM, "trace": ["t", ""]}]}, ["items.0.trace.1"]),
        ({"items": [ITEM, {**ITEM, "options": {"A": ""}}]}, ["items.1.options.A"]),
        ({"items": [{**ITEM, "lable": "A"}]}, ["items.0.lable"]),
        ({"items": [{**ITEM, "label": 1}]}, ["items.0.label"]),
        ({"items": [{**ITEM, "seed": -1}]}, ["items.0.seed"]),
        ({"items": [{"case": {**ITEM, "trace": ""}}]}, ["items.0.case.trace"]),
        ({"items": [5]}, ["items.0"]),
        ({"items": [{"kind": "both"}]}, ["items.0"]),
        ({"items": [{"kind": "judge", "response": "r"}]}, ["items.0.label"]),
        ({"items": [{"kind": "judge", "response": "r", "label": 2}]}, ["items.0.label"]),
        ({"items": [{"kind": "judge", "response": "r", "label": 1, "trace": "t"}]}, ["items.0.trace"]),
        ({"items": [ITEM], "weights": {}}, ["weights"]),
        ({"items": [ITEM], "weights": {"accuracy": -1}}, ["weights.accuracy"]),
        ({"items": [ITEM], "weights": {"process": 1}}, ["weights.process"]),
        ({"items": [ITEM], "accuracy": "both"}, ["accuracy"]),
        ({"items": [ITEM], "deadline_s": 0}, ["deadline_s"]),
        ({"items": [ITEM], "wieghts": {}}, ["wieghts"]),
    ],
)
def test_the_field_is_named_as_it_was_sent(client: TestClient, body: dict[str, Any], fields: list[str]) -> None:
    assert [fault["field"] for fault in refused(client, body)["errors"]] == fields


def test_examples_are_valid() -> None:
    for example in RewardRequest.model_json_schema()["examples"]:
        assert RewardRequest.model_validate(example)


# ---- with stores -----------------------------------------------------------------------------------------------------


def test_a_retry_costs_only_what_was_not_judged(tmp_path: Path) -> None:
    """What a trainer that asks again after a 503 relies on."""
    engine = rewarding_engine()
    settings = Settings(paths=PathSettings(state=tmp_path))
    with TestClient(rewarding_app(engine, stores=Stores.of(settings))) as client:
        body = {"query": [f"q\n{TRACE}", f"trouble\n{TRACE}"], "prompts": ["q\n", "trouble\n"]}
        assert client.post("/get_reward", json=body).status_code == 503
        first = len(engine.requests)
        assert client.post("/get_reward", json=body).status_code == 503
        again = [engine.tokenizer.decode(request.ids) for request in engine.requests[first:]]
        assert again
        assert all("trouble" in prompt and not about_coherence(prompt) for prompt in again)
        [reward] = rewards_of(client, ITEM)
        for name, judge in (("judgment_id", "judge_id"), ("coherence_judgment_id", "coherence_judge_id")):
            kept = client.get(f"/judgments/{reward[name]}").json()
            assert kept["judge_id"] == reward[judge]


def test_what_needs_no_judge_asks_none_and_leaves_no_line(tmp_path: Path) -> None:
    stores = Stores.of(Settings(paths=PathSettings(state=tmp_path)))
    with TestClient(rewarding_app(stores=stores)) as client:
        item = {"kind": "judge", "response": "<think>x</think><answer>1</answer>", "label": 1}
        assert [reward["reward"] for reward in rewards_of(client, item)] == [1.0]
        assert client.get("/judgments").json()["judgments"] == []


async def test_nobody_judges_what_there_is_no_judge_for() -> None:
    service = JudgingService(judge_of(), ServeSettings())
    case = Case.model_validate({"id": "c", **ITEM})
    with pytest.raises(ServiceError, match="no judge for coherence") as refused:
        await service.answer_all([Asked(case, about="coherence")], caller=Caller())
    assert refused.value.status == 501
    [judgment] = await service.judge_all([case], caller=Caller())
    assert judgment.p_correct == pytest.approx(RIGHT)


async def test_questions_are_let_in_together_or_not_at_all() -> None:
    """Of two questions about a trace the first would fit beside what is in flight; it is not begun."""
    engine = rewarding_engine()
    judge = judge_of(engine)
    service = JudgingService(judge, ServeSettings(max_queue=2), coherence=coherence_judge(judge))
    case = Case.model_validate({"id": "c", **ITEM})
    with service.admission.admit(1, Caller("somebody else"), 60.0):
        with pytest.raises(ServiceError, match="exceed the limit of 2"):
            await service.answer_all([Asked(case), Asked(case, about="coherence")], caller=Caller())
        assert not engine.requests
    both = await service.answer_all([Asked(case), Asked(case, about="coherence")], caller=Caller())
    assert [judgment.judge_id for judgment in both] == [judge.judge_id, coherence_judge(judge).judge_id]
