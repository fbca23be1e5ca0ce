import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from choosing_fakes import OPTIONS, QUESTION, choosing_app, trace
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from serve.choosing_schemas import SelectRequest

STRATEGIES = ("best_of_n", "hard", "soft", "majority")
JUDGED = STRATEGIES[:3]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(choosing_app(max_batch=12)) as client:
        yield client


def selected(client: TestClient, candidates: Sequence[Any], strategy: str = "soft", **more: Any) -> dict[str, Any]:
    body = {"question": QUESTION, "options": OPTIONS, "candidates": candidates, "strategy": strategy, **more}
    response = client.post("/select", json=body)
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


def of(*traces: str) -> list[dict[str, str]]:
    return [{"trace": text} for text in traces]


# ---- the strategies --------------------------------------------------------------------------------------------------

FOUR = of(trace("A", 0.6), trace("A", 0.7), trace("B", 0.95), trace("C", 0.1))


@pytest.mark.parametrize(
    ("strategy", "answer", "chosen", "weights"),
    [
        ("best_of_n", "B", 2, {"B": 1.0, "A": 0.0, "C": 0.0}),
        ("hard", "A", 1, {"A": 2 / 3, "B": 1 / 3, "C": 0.0}),
        ("soft", "A", 1, {"A": 1.3 / 2.35, "B": 0.95 / 2.35, "C": 0.1 / 2.35}),
    ],
)
def test_each_strategy_counts_as_it_says(
    client: TestClient, strategy: str, answer: str, chosen: int, weights: dict[str, float]
) -> None:
    reply = selected(client, FOUR, strategy)
    assert (reply["answer"], reply["chosen"], reply["chosen_id"]) == (answer, chosen, str(chosen))
    assert {vote["answer"]: vote["weight"] for vote in reply["votes"]} == pytest.approx(weights)
    assert {vote["answer"]: vote["candidates"] for vote in reply["votes"]} == {"A": [0, 1], "B": [2], "C": [3]}
    assert [judgment["p_correct"] for judgment in reply["judgments"]] == pytest.approx([0.6, 0.7, 0.95, 0.1])
    assert [judgment["id"] for judgment in reply["judgments"]] == ["0", "1", "2", "3"]
    assert (reply["tied"], reply["fell_back"], reply["not_judged"], reply["reason"]) == (False, False, 0, "")


def test_a_majority_asks_no_judge(client: TestClient) -> None:
    reply = selected(client, of(trace("B", None), trace("B", None, "x"), trace("A", 0.9)), "majority")
    assert reply["answer"] == "B"
    assert reply["chosen"] in (0, 1)
    assert reply["judgments"] == []
    assert reply["not_judged"] == 0
    assert reply["votes"][0] == {"answer": "B", "weight": pytest.approx(2 / 3), "candidates": [0, 1]}


def test_ids_are_given_back(client: TestClient) -> None:
    candidates = [{"id": "first", "trace": trace("A", 0.2)}, {"id": "second", "trace": trace("B", 0.8)}]
    reply = selected(client, candidates)
    assert reply["chosen_id"] == "second"
    assert [judgment["id"] for judgment in reply["judgments"]] == ["first", "second"]


def test_no_trace_judged_right_leaves_a_majority_of_the_judged(client: TestClient) -> None:
    reply = selected(client, of(trace("A", 0.3), trace("A", 0.2), trace("B", 0.4), *[trace("B", None)] * 3), "hard")
    assert reply["answer"] == "A"
    assert reply["fell_back"]
    assert reply["not_judged"] == 3
    assert reply["votes"][1] == {"answer": "B", "weight": pytest.approx(1 / 3), "candidates": [2]}


# ---- what was not judged ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", JUDGED)
def test_what_was_not_judged_has_no_say(client: TestClient, strategy: str) -> None:
    reply = selected(client, of(*[trace("B", None)] * 5, trace("A", 0.6)), strategy)
    assert (reply["answer"], reply["chosen"], reply["not_judged"]) == ("A", 5, 5)
    assert reply["votes"] == [{"answer": "A", "weight": 1.0, "candidates": [5]}]
    assert [judgment["p_correct"] is None for judgment in reply["judgments"]] == [True] * 5 + [False]


@pytest.mark.parametrize("strategy", JUDGED)
def test_where_nothing_was_judged_nothing_is_chosen(client: TestClient, strategy: str) -> None:
    reply = selected(client, of(trace("B", None), trace("B", None, "x"), trace("A", None)), strategy)
    assert (reply["answer"], reply["chosen"], reply["chosen_id"], reply["votes"]) == (None, None, None, [])
    assert reply["not_judged"] == 3
    assert reply["reason"] == "no candidate was judged (unparseable), and without a judgment nothing is chosen"
    assert {judgment["status"] for judgment in reply["judgments"]} == {"unparseable"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_unreadable_answers_choose_nothing(client: TestClient, strategy: str) -> None:
    reply = selected(client, of(trace(None, 0.9), trace("B", 0.55)), strategy)
    assert (reply["answer"], reply["chosen"]) == ("B", 1)


@pytest.mark.parametrize("strategy", ["hard", "soft", "majority"])
def test_votes_need_an_answer(client: TestClient, strategy: str) -> None:
    reply = selected(client, of(trace(None, 0.9), trace(None, 0.55)), strategy)
    assert (reply["answer"], reply["chosen"]) == (None, None)
    assert reply["reason"] == "no answer can be read from the candidates that have a say"


def test_the_best_trace_needs_none_where_there_are_none(client: TestClient) -> None:
    body = {"question": "Explain.", "candidates": of(trace(None, 0.4), trace(None, 0.9)), "strategy": "best_of_n"}
    reply = client.post("/select", json=body).json()
    assert (reply["answer"], reply["chosen"], reply["votes"], reply["tied"]) == (None, 1, [], False)


# ---- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["B", "b", "(B)", "Thrombin", "B. thrombin", "The answer is B."])
def test_an_answer_is_an_option_however_it_is_written(client: TestClient, answer: str) -> None:
    reply = selected(client, [{"trace": trace("A", 0.6), "answer": answer}, {"trace": trace("A", 0.55)}])
    assert reply["answer"] == "B"  # what is given counts, not what the trace says


def test_a_given_answer_that_is_no_option_is_unreadable(client: TestClient) -> None:
    reply = selected(client, [{"trace": trace("A", 0.9), "answer": "Z"}, {"trace": trace("B", 0.1)}])
    assert reply["answer"] == "B"


def test_without_options_answers_are_texts(client: TestClient) -> None:
    answers = ["Vitamin K  epoxide reductase", "vitamin k epoxide reductase", "Thrombin"]
    candidates = [{"trace": trace(None, 0.6, answer), "answer": answer} for answer in answers]
    body = {"question": QUESTION, "candidates": candidates}
    reply = client.post("/select", json=body).json()
    assert reply["answer"] == "Vitamin K  epoxide reductase"  # as one of them wrote it
    assert reply["votes"][0]["candidates"] == [0, 1]


# ---- order -----------------------------------------------------------------------------------------------------------

CANDIDATE = st.builds(
    lambda answer, p, note: {"trace": trace(answer, p, note)},
    st.sampled_from([*OPTIONS, None]),
    st.sampled_from([0.2, 0.4, 0.6, 0.8, None]),
    st.sampled_from(["", "x", "y"]),
)


@given(
    candidates=st.lists(CANDIDATE, min_size=1, max_size=12), strategy=st.sampled_from(STRATEGIES), seed=st.integers()
)
def test_order_changes_neither_scores_nor_choice(
    client: TestClient, candidates: list[dict[str, Any]], strategy: str, seed: int
) -> None:
    moved = list(range(len(candidates)))
    random.Random(seed).shuffle(moved)
    one = selected(client, candidates, strategy)
    other = selected(client, [candidates[place] for place in moved], strategy)

    for name in ("answer", "tied", "fell_back", "not_judged", "reason"):
        assert one[name] == other[name], name
    assert (one["chosen"] is None) == (other["chosen"] is None)
    if one["chosen"] is not None:
        assert candidates[one["chosen"]] == candidates[moved[other["chosen"]]]
    assert [(vote["answer"], vote["weight"]) for vote in one["votes"]] == [
        (vote["answer"], vote["weight"]) for vote in other["votes"]
    ]
    for vote, same in zip(one["votes"], other["votes"], strict=True):
        assert vote["candidates"] == sorted(moved[place] for place in same["candidates"])
    if strategy != "majority":
        p = [judgment["p_correct"] for judgment in one["judgments"]]
        assert [judgment["p_correct"] for judgment in other["judgments"]] == [p[place] for place in moved]


def test_a_tie_favours_no_letter(client: TestClient) -> None:
    """Over many questions, an even race is won by either option."""
    won = []
    for number in range(40):
        body = {
            "question": f"Question {number}?",
            "options": OPTIONS,
            "candidates": of(trace("A", 0.6), trace("B", 0.6)),
        }
        reply = client.post("/select", json=body).json()
        assert reply["tied"]
        won.append(reply["answer"])
    assert 8 < won.count("A") < 32
    assert set(won) == {"A", "B"}


def test_equal_candidates_are_judged_once_and_vote_each() -> None:
    app = choosing_app(max_batch=4)
    with TestClient(app) as client:
        reply = selected(client, of(*[trace("A", 0.3)] * 8, trace("B", 0.9)))  # nine candidates, two traces
        assert reply["votes"][0] == {"answer": "A", "weight": pytest.approx(2.4 / 3.3), "candidates": list(range(8))}
        assert [judgment["id"] for judgment in reply["judgments"]] == [str(place) for place in range(9)]
        body = {"question": "q", "candidates": of(*(f"trace {n}" for n in range(5)))}
        assert client.post("/select", json=body).status_code == 413


# ---- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["question", "candidates"]),
        ({"question": "q", "candidates": []}, ["candidates"]),
        ({"question": "q", "candidates": [{"trace": "t"}, {}]}, ["candidates.1.trace"]),
        ({"question": "q", "candidates": [{"trace": ""}]}, ["candidates.0.trace"]),
        ({"question": "q", "candidates": [{"trace": "t", "answr": 1}]}, ["candidates.0.answr"]),
        ({"question": "q", "candidates": ["t"]}, ["candidates.0"]),
        ({"question": "q", "candidates": [{"trace": ["t", 5]}]}, ["candidates.0.trace.1"]),
        ({"question": 5, "candidates": [{"trace": "t"}]}, ["question"]),
        ({"question": "q", "options": {"A": ""}, "candidates": [{"trace": "t"}]}, ["options.A"]),
        ({"question": "q", "candidates": [{"trace": "t"}], "strategy": "best-of-n"}, ["strategy"]),
        ({"question": "q", "candidates": [{"trace": "t"}], "extra": 1}, ["extra"]),
        ({"question": "q", "candidates": [{"trace": "t"}], "deadline_s": 0}, ["deadline_s"]),
        ([], ["body"]),
    ],
)
def test_the_field_is_named_as_it_was_sent(client: TestClient, body: object, fields: list[str]) -> None:
    response = client.post("/select", json=body)
    assert response.status_code == 422
    assert [fault["field"] for fault in response.json()["errors"]] == fields


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NEAR = st.fixed_dictionaries(
    {"question": JSON_VALUES | st.just("q")},
    optional={
        "options": JSON_VALUES | st.just(OPTIONS),
        "candidates": JSON_VALUES
        | st.lists(
            st.fixed_dictionaries({}, optional={"trace": JSON_VALUES | st.just("Belief 0.5"), "answer": JSON_VALUES}),
            max_size=3,
        ),
        "strategy": JSON_VALUES | st.sampled_from(STRATEGIES),
        "seed": JSON_VALUES,
        "deadline_s": JSON_VALUES,
        "query": JSON_VALUES | st.just("q"),
        "documents": JSON_VALUES | st.lists(st.just("Belief 0.5") | JSON_VALUES, max_size=3),
        "top_n": JSON_VALUES,
    },
)


@given(body=JSON_VALUES | NEAR, path=st.sampled_from(["/select", "/v1/rerank"]))
def test_no_body_makes_an_error_of_our_own(client: TestClient, body: object, path: str) -> None:
    response = client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code in (200, 413, 422, 503), response.text
    assert response.headers["content-type"] in ("application/json", "application/problem+json")


def test_examples_work(client: TestClient) -> None:
    [example] = SelectRequest.model_json_schema()["examples"]
    assert client.post("/select", json=example).status_code == 200
