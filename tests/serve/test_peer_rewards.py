"""The requests of OpenRLHF, slime and NeMo Gym, as these send them, and what each reads from the answer."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from live_server import listening
from reward_fakes import HOLDS, QUESTION, RIGHT, TRACE, rewarding_app, rewarding_engine
from serve_fakes import until

ALL = (0.25 * RIGHT + 0.10 * HOLDS + 0.10) / 0.45  # of a trace that is judged and has a final answer
PARTS = ["accuracy", "coherence", "format"]
ASKED = f"{QUESTION}\nA. Vitamin K epoxide reductase\nB. Thrombin"
CHAT = f"<|im_start|>user\n{ASKED}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(rewarding_app(max_batch=16, max_queue=16, retry_after_s=7)) as client:
        yield client


def openrlhf(*samples: tuple[str, str, Any]) -> dict[str, Any]:
    """A batch: prompt, response and label of each sample."""
    return {
        "query": [f"{prompt}{response}<|im_end|>" for prompt, response, _ in samples],
        "prompts": [prompt for prompt, _, _ in samples],
        "labels": [label for _, _, label in samples],
    }


def slime(question: str = ASKED, response: str = TRACE, label: Any = "A") -> dict[str, Any]:
    return {"prompt": question, "response": response, "label": label}


def nemo_gym(asked: str = ASKED, said: str = TRACE, **fields: Any) -> dict[str, Any]:
    """A rollout, as NeMo Gym's agents send it."""
    return {
        "responses_create_params": {
            "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": asked}],
            "temperature": 1.0,
            "tools": [],
        },
        "response": {
            "id": "resp_1",
            "object": "response",
            "created_at": 1.5,
            "model": "policy",
            "output": [
                {"type": "reasoning", "id": "rs_1", "summary": [], "content": None},
                {
                    "type": "message",
                    "role": "assistant",
                    "id": "msg_1",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": said, "annotations": []}],
                },
            ],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        },
        **fields,
    }


def not_judged(response: httpx2.Response, retry_after: str = "7") -> dict[str, Any]:
    """A 503 that says when to come back, and holds nothing that could be taken for a reward."""
    assert response.status_code == 503, response.text
    assert response.headers["retry-after"] == retry_after
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert not {"rewards", "scores", "score", "reward"} & set(problem)
    return problem


# ---- OpenRLHF --------------------------------------------------------------------------------------------------------


def test_openrlhf_reads_a_number_for_each_sample(client: TestClient) -> None:
    body = openrlhf((CHAT, TRACE, "A"), (CHAT, "I cannot say.", "A"), (f"{ASKED}\n", TRACE, None))
    response = client.post("/get_reward", json=body)
    assert response.status_code == 200, response.text
    got = response.json()
    assert list(got) == ["rewards", "scores", "extra_logs"]
    assert got["rewards"] == got["scores"] == pytest.approx([ALL, ALL - 0.10 / 0.45, ALL])
    assert list(got["extra_logs"]) == PARTS
    for place, reward in enumerate(got["rewards"]):
        assert sum(values[place] for values in got["extra_logs"].values()) == pytest.approx(reward)


def test_extra_workers_of_openrlhf_send_empty_lists(client: TestClient) -> None:
    for body in ({"query": [], "prompts": [], "labels": []}, {"query": [], "prompts": []}):
        response = client.post("/get_reward", json=body)
        assert response.status_code == 200
        assert response.json() == {
            "rewards": [],
            "scores": [],
            "extra_logs": {"accuracy": [], "coherence": [], "format": []},
        }


def test_the_judge_reads_question_and_response_without_the_template(client: TestClient) -> None:
    engine = rewarding_engine()
    with TestClient(rewarding_app(engine)) as alone:
        alone.post("/get_reward?accuracy_weight=1", json=openrlhf((CHAT, TRACE, "A")))
    prompt = engine.tokenizer.decode(engine.requests[0].ids)
    assert f"Medical problem:\n{ASKED}\n\nReasoning to check:\n{TRACE}\n" in prompt + "\n"


def test_weights_and_accuracy_stand_in_the_address(client: TestClient) -> None:
    body = openrlhf((CHAT, TRACE, "A"), (CHAT, TRACE, "Thrombin"))
    by_label = client.post("/get_reward?accuracy=label&accuracy_weight=1", json=body).json()
    assert by_label["rewards"] == [1.0, 0.0]
    assert by_label["extra_logs"] == {"accuracy": [1.0, 0.0], "coherence": [0.0, 0.0], "format": [0.0, 0.0]}
    mixed = client.post("/get_reward?accuracy_weight=3&coherence_weight=1", json=body).json()
    assert mixed["rewards"] == pytest.approx([(3 * RIGHT + HOLDS) / 4] * 2)


def test_one_sample_that_was_not_judged_is_503_for_all(client: TestClient) -> None:
    body = openrlhf((CHAT, TRACE, "A"), ("trouble\n", TRACE, "A"), ("darkness\n", TRACE, "A"), ("trouble\n", "x", ""))
    problem = not_judged(client.post("/get_reward", json=body))
    assert problem["type"] == "urn:medverify:problem:not-judged"
    assert problem["not_judged"] == {"engine_failed": 2, "retrieval_failed": 1}
    assert problem["detail"].startswith(
        "3 of 4 samples were not judged: engine_failed 2, retrieval_failed 1; the first"
    )


def test_a_sample_that_no_other_try_mends_is_named_and_asks_nobody_to_come_back(client: TestClient) -> None:
    for body in (
        openrlhf((CHAT, TRACE, "A"), ("silence\n", TRACE, "A")),
        openrlhf(("trouble\n", TRACE, "A"), ("silence\n", "x", "A")),
    ):
        response = client.post("/get_reward", json=body)
        assert response.status_code == 422
        assert "Retry-After" not in response.headers
        problem = response.json()
        assert problem["type"] == "urn:medverify:problem:not-judged"
        assert "the first is 1: " in problem["detail"]
        assert not {"rewards", "scores", "reward"} & set(problem)


def test_an_empty_response_is_the_policys_own_doing(client: TestClient) -> None:
    """It costs no judgment, and must not stop a run whose protocol has no word for it."""
    engine = rewarding_engine()
    with TestClient(rewarding_app(engine)) as alone:
        got = alone.post("/get_reward", json=openrlhf((CHAT, "", "A"), (CHAT, " \n", None))).json()
    assert got["rewards"] == [0.0, 0.0]
    assert list(got["extra_logs"].values()) == [[0.0, 0.0]] * 3
    assert not engine.requests
    mixed = client.post("/get_reward", json=openrlhf((CHAT, "", "A"), (CHAT, TRACE, "A"))).json()
    assert mixed["rewards"] == pytest.approx([0.0, ALL])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "query"),
        ({"query": ["q"]}, "prompts"),
        ({"query": ["q"], "prompts": []}, "body"),
        ({"query": ["q r"], "prompts": ["q"], "labels": ["A", "B"]}, "body"),
        ({"query": ["something else"], "prompts": ["q"]}, "query.0"),
        ({"query": ["q r", 5], "prompts": ["q", "q"]}, "query.1"),
        ({"query": ["<|im_end|>r"], "prompts": ["<|im_end|>"]}, "query.0"),
    ],
)
def test_what_openrlhf_never_sends_is_refused(client: TestClient, body: dict[str, Any], field: str) -> None:
    response = client.post("/get_reward", json=body)
    assert response.status_code == 422, response.text
    assert field in [fault["field"] for fault in response.json()["errors"]]


def test_a_label_that_is_needed_and_missing_is_no_reason_to_come_back(client: TestClient) -> None:
    body = openrlhf((CHAT, TRACE, "A"), (CHAT, TRACE, 5))
    response = client.post("/get_reward?accuracy=label", json=body)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == ["labels.1"]


# ---- slime -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/slime", "/reward/slime"])
@pytest.mark.parametrize("prompt", [ASKED, CHAT, [{"role": "user", "content": ASKED}]])
def test_slime_reads_a_score(client: TestClient, path: str, prompt: Any) -> None:
    response = client.post(path, json=slime(prompt, f"{TRACE}<|im_end|>"))
    assert response.status_code == 200, response.text
    got = response.json()
    assert list(got) == ["score", "components", "judge_id", "coherence_judge_id"]
    assert got["score"] == pytest.approx(ALL)
    assert list(got["components"]) == ["accuracy", "verifier", "label_match", "coherence", "format"]
    assert got["components"]["label_match"] == 1.0


@pytest.mark.parametrize("label", [None, "", 5, {"answer": "A"}, "A" * 20_000])
def test_a_label_that_is_no_text_is_none(client: TestClient, label: Any) -> None:
    got = client.post("/slime", json=slime(label=label)).json()
    assert got["components"]["label_match"] is None
    assert client.post("/slime?accuracy=label", json=slime(label=label)).status_code == 422


@pytest.mark.parametrize(("question", "status"), [("trouble", "engine_failed"), ("darkness", "retrieval_failed")])
def test_slime_is_told_to_come_back(client: TestClient, question: str, status: str) -> None:
    assert not_judged(client.post("/slime", json=slime(question)))["not_judged"] == {status: 1}


def test_an_empty_response_of_slimes(client: TestClient) -> None:
    assert client.post("/slime", json=slime(response="<|im_end|>")).json()["score"] == 0.0


@pytest.mark.parametrize("prompt", ["", [], [{"role": "system", "content": "x"}], 5, None])
def test_a_prompt_without_a_question_is_refused(client: TestClient, prompt: Any) -> None:
    response = client.post("/slime", json=slime(prompt))
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "prompt"


# ---- NeMo Gym --------------------------------------------------------------------------------------------------------


def test_a_rollout_comes_back_with_its_reward(client: TestClient) -> None:
    sent = nemo_gym(expected_answer="A", verifier_metadata={"topic": "é"}, instance_config={"agent": "x"})
    response = client.post("/verify", json=sent)
    assert response.status_code == 200, response.text
    got = response.json()
    assert {name: got[name] for name in sent} == sent
    assert set(got) - set(sent) == {"reward", "reward_components"}
    assert got["reward"] == pytest.approx(ALL)
    assert list(got["reward_components"]) == PARTS
    assert sum(got["reward_components"].values()) == pytest.approx(got["reward"])


@pytest.mark.parametrize(
    ("fields", "reward"),
    [
        ({"label": "A"}, 1.0),
        ({"expected_answer": "B"}, 0.0),
        ({"question": QUESTION, "options": {"A": "Thrombin", "B": "VKOR"}, "label": "thrombin"}, 1.0),
        ({"question": QUESTION, "options": [{"A": "Thrombin"}, {"B": "VKOR"}], "label": "B"}, 0.0),
        ({"options": "none of your business", "label": "A"}, 1.0),
        ({"question": 5, "options": [], "label": "A"}, 1.0),
    ],
)
def test_fields_of_the_data_set_are_used(client: TestClient, fields: dict[str, Any], reward: float) -> None:
    got = client.post("/verify?accuracy=label&accuracy_weight=1", json=nemo_gym(**fields)).json()
    assert got["reward"] == got["reward_components"]["accuracy"] == reward


def failed_judgment(response: httpx2.Response, sent: dict[str, Any]) -> str:
    """A failure as NeMo Gym wants it: masked, and named; the sample goes to its file of failures."""
    assert response.status_code == 200, response.text
    got = response.json()
    assert got["reward"] == 0.0
    assert got["reward_components"] == dict.fromkeys(PARTS, 0.0)
    assert got["_ng_failure_class"] == "judge_failed"
    assert got["instance_config"]["mask_sample"] is True
    assert got["response"] == sent["response"]
    error: str = got["_ng_failure_judge_error"]
    return error


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ("trouble", "engine_failed: correctness was not judged: the judge's engine failed; "),
        ("darkness", "retrieval_failed: correctness was not judged: a search failed; "),
        ("silence", "unparseable: correctness was not judged"),
    ],
)
def test_a_failed_judgment_is_masked(client: TestClient, question: str, error: str) -> None:
    sent = nemo_gym(question, instance_config={"agent": "x"})
    response = client.post("/verify", json=sent)
    assert failed_judgment(response, sent).startswith(error)
    assert response.json()["instance_config"]["agent"] == "x"


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "x"}}, "the response has an error"),
        ({"status": "failed"}, "the response is failed"),
        ({"status": "cancelled"}, "the response is cancelled"),
        ({"status": "in_progress"}, "the response is in_progress"),
    ],
)
@pytest.mark.parametrize("output", [[], [{"role": "assistant", "content": "The answer is"}]])
def test_a_response_that_failed_on_its_way_is_masked(
    client: TestClient, broken: dict[str, Any], error: str, output: list[Any]
) -> None:
    sent = nemo_gym(response={"output": output, **broken})
    assert failed_judgment(client.post("/verify", json=sent), sent) == error


def test_an_attempt_after_a_failure_leaves_nothing_of_it(client: TestClient) -> None:
    again = nemo_gym(_ng_failure_class="judge_failed", _ng_failure_judge_error="x", reward=0.0, reward_components={})
    got = client.post("/verify", json=again).json()
    assert got["reward"] == pytest.approx(ALL)
    assert not [name for name in got if name.startswith("_ng_")]


def test_a_rollout_without_an_answer_is_the_policys_own_doing(client: TestClient) -> None:
    got = client.post("/verify", json=nemo_gym(said="")).json()
    assert got["reward"] == 0.0
    assert "_ng_failure_class" not in got
    assert "instance_config" not in got


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"responses_create_params": 5, "response": {}}, "responses_create_params"),
        ({"responses_create_params": {"input": "q"}}, "response"),
        (nemo_gym(asked=" "), "responses_create_params.input"),
        (nemo_gym(response={}), "response.output"),
        (nemo_gym(response={"output": None}), "response.output"),
        (nemo_gym(response={"output": "The answer is A."}), "response.output"),
        (nemo_gym(response={"output": [{"type": "reasoning"}, 5]}), "response.output.1"),
        (nemo_gym(response={"output": [{"content": {"text": "The answer is A."}}]}), "response.output.0.content"),
    ],
)
def test_what_nemo_gym_never_sends_is_refused(client: TestClient, body: dict[str, Any], field: str) -> None:
    response = client.post("/verify", json=body)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["field"] == field


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b'"\\ud800"'])
def test_what_cannot_be_sent_back_is_refused_before_it_costs(value: bytes) -> None:
    engine = rewarding_engine()
    body = json.dumps(nemo_gym(extra="here")).encode().replace(b'"here"', value)
    with TestClient(rewarding_app(engine)) as client:
        response = client.post("/verify", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert not engine.requests


# ---- trouble, on every route -----------------------------------------------------------------------------------------

ROUTES: list[tuple[str, Callable[[str], dict[str, Any]]]] = [
    ("/get_reward", lambda question: openrlhf((f"{question}\n", TRACE, "A"))),
    ("/slime", slime),
    ("/reward/slime", slime),
    ("/verify", nemo_gym),
]


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_a_judge_that_takes_too_long(path: str, body: Callable[[str], dict[str, Any]]) -> None:
    with TestClient(rewarding_app(rewarding_engine(delay_s=5), retry_after_s=7)) as client:
        sent = body(ASKED)
        response = client.post(f"{path}?deadline_s=0.05", json=sent)
    if path == "/verify":
        assert failed_judgment(response, sent).startswith("timeout: ")
    else:
        assert not_judged(response)["not_judged"] == {"timeout": 1}


def test_our_deadlines_pass_before_the_trainers_stop_waiting() -> None:
    from serve.routes.peers import OPENRLHF_S, SLIME_S

    assert OPENRLHF_S < 180
    assert SLIME_S < 120


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_a_full_service(path: str, body: Callable[[str], dict[str, Any]]) -> None:
    engine = rewarding_engine()
    engine.gate.clear()
    async with (
        listening(rewarding_app(engine, max_queue=2, retry_after_s=7)) as url,
        httpx2.AsyncClient(base_url=url, timeout=30) as client,
    ):
        first = asyncio.create_task(client.post("/slime", json=slime()))
        await until(lambda: engine.under_way == 2)
        sent = body(ASKED)
        response = await client.post(path, json=sent)
        if path == "/verify":
            assert "in flight" in failed_judgment(response, sent)
        else:
            not_judged(response)
        engine.gate.set()
        assert (await first).json()["score"] == pytest.approx(ALL)
        assert (await client.get("/ready")).json()["cases_in_flight"] == 0


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_a_client_that_leaves_costs_nothing_more(path: str, body: Callable[[str], dict[str, Any]]) -> None:
    engine = rewarding_engine()
    engine.gate.clear()
    async with listening(rewarding_app(engine)) as url, httpx2.AsyncClient(base_url=url) as client:
        with pytest.raises(httpx2.TimeoutException):
            await client.post(path, json=body(ASKED), timeout=0.3)
        await until(lambda: engine.under_way == 0)
        engine.gate.set()
        assert (await client.get("/ready")).json()["cases_in_flight"] == 0


@pytest.mark.parametrize("query", ["accuracy_weight=0", "accuracy=both", "format_weight=-1", "deadline_s=0", "seed=-1"])
@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_parameters_that_do_not_fit(
    client: TestClient, path: str, body: Callable[[str], dict[str, Any]], query: str
) -> None:
    response = client.post(f"{path}?{query}", json=body(ASKED))
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == query.split("=", maxsplit=1)[0]


def test_a_stopped_server_answers_nobody() -> None:
    """What the trainers then do is theirs: none of them has a number."""

    async def ask() -> None:
        async with listening(rewarding_app()) as url:
            pass
        async with httpx2.AsyncClient(base_url=url) as client:
            for path, body in ROUTES:
                with pytest.raises(httpx2.ConnectError):
                    await client.post(path, json=body(ASKED))

    asyncio.run(ask())
