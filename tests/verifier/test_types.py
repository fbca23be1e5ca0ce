"""What may cross the wire, and what may not."""

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError
from verifier_fakes import PASSAGES

from verifier.types import (
    Case,
    EvidencePassage,
    Judgment,
    Question,
    Search,
    Status,
    StopReason,
    Trace,
    Usage,
    json_schemas,
)

NESTED = {"id": "c", "question": {"text": "q?", "options": {"A": "yes", "B": "no"}}, "trace": {"text": "t."}}


@pytest.mark.parametrize(
    ("plain", "nested"),
    [
        ({"id": "c", "question": "q?", "options": {"A": "yes", "B": "no"}, "trace": "t."}, NESTED),
        ({"id": "c", "question": " q? \n", "trace": "t."}, {**NESTED, "question": {"text": "q?"}}),
        ({"id": "c", "question": "q?", "options": None, "trace": "t."}, {**NESTED, "question": {"text": "q?"}}),
        (
            {"id": "c", "question": {"text": "q?"}, "trace": ["a", "b"]},
            {"id": "c", "question": "q?", "trace": {"steps": ["a", "b"]}},
        ),
    ],
)
def test_plain_and_nested_forms_are_the_same_case(plain: dict[str, Any], nested: dict[str, Any]) -> None:
    assert Case.model_validate(plain) == Case.model_validate(nested)
    assert Case.model_validate_json(json.dumps(plain)) == Case.model_validate(nested)


def test_the_callers_dict_is_left_alone() -> None:
    data = {"id": "c", "question": "q?", "options": {"A": "yes"}, "trace": "t."}
    before = json.dumps(data)
    Case.model_validate(data)
    assert json.dumps(data) == before


@pytest.mark.parametrize(
    "data",
    [
        {**NESTED, "label": 1},
        {**NESTED, "options": {"A": "yes"}},
        {**NESTED, "question": {"text": "q?", "answer": "A"}},
        {**NESTED, "trace": {"text": "t.", "steps": ["t."]}},
        {**NESTED, "trace": {}},
        {**NESTED, "trace": {"text": "t.", "label": 1}},
        {**NESTED, "trace": []},
        {**NESTED, "trace": [""]},
        {**NESTED, "trace": ["a", " \n"]},
        {**NESTED, "trace": "  "},
        {**NESTED, "trace": None},
        {**NESTED, "question": ""},
        {**NESTED, "question": "x" * 200_001},
        {**NESTED, "question": {"text": "q?", "options": {"": "yes"}}},
        {**NESTED, "question": {"text": "q?", "options": {"A.": "yes"}}},
        {**NESTED, "question": {"text": "q?", "options": {"A\n": "yes"}}},
        {**NESTED, "question": {"text": "q?", "options": {"ABCD": "yes"}}},
        {**NESTED, "question": {"text": "q?", "options": {"A": ""}}},
        {**NESTED, "id": ""},
        {**NESTED, "id": "x" * 513},
        {"question": "q?", "trace": "t."},
        {"id": "c", "trace": "t."},
        {"id": "c", "question": "q?"},
        {"id": 7, "question": "q?", "trace": "t."},
        "a case",
        [],
    ],
)
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(ValidationError):
        Case.model_validate(data)


def test_steps_are_numbered_from_one() -> None:
    assert Trace(steps=["a", "b"]).render() == "Step 1: a\nStep 2: b"
    assert Trace(text="as it is").render() == "as it is"


def test_the_digest_is_that_of_the_content() -> None:
    case = Case.model_validate(NESTED)
    assert case.digest == case.model_copy(update={"id": "other"}).digest
    others = [
        case.model_copy(update={"trace": Trace(text="t")}),
        case.model_copy(update={"trace": Trace(steps=["t."])}),
        case.model_copy(update={"question": Question(text="q?")}),
        case.model_copy(update={"question": Question(text="q?", options={"B": "no", "A": "yes"})}),
    ]
    assert len({other.digest for other in [case, *others]}) == 5


# ---- judgments -------------------------------------------------------------------------------------------------------


def judgment(**fields: Any) -> Judgment:
    search = Search(
        query="q", passages=[EvidencePassage(**PASSAGES[0].model_dump(), score=2.0, rank=1)], latency_ms=3.0
    )
    whole = {
        "id": "c",
        "status": Status.SCORED,
        "verdict": 1,
        "p_correct": 0.9,
        "label_mass": 0.8,
        "forced": False,
        "reasoning": "r",
        "searches": [search],
        "stop_reason": StopReason.ANSWERED,
        "turns": 2,
        "format_score": 1.0,
        "usage": Usage(),
        "latency_ms": 5.0,
        "seed": 0,
        "case_digest": "c" * 64,
        "judge_id": "d" * 64,
    }
    return Judgment(**{**whole, **fields})


def test_a_judgment_survives_json() -> None:
    assert Judgment.model_validate_json(judgment().model_dump_json()) == judgment()


def test_a_scored_one_may_be_calibrated_and_old_lines_are_not() -> None:
    calibrated = judgment(p_calibrated=0.7)
    assert Judgment.model_validate_json(calibrated.model_dump_json()).p_calibrated == 0.7
    old = judgment().model_dump(mode="json")
    del old["p_calibrated"]
    assert Judgment.model_validate(old) == judgment()


NOTHING: dict[str, Any] = {"verdict": None, "p_correct": None, "label_mass": None}


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.SCORED])
def test_a_failure_has_no_number(status: Status) -> None:
    assert judgment(status=status, **NOTHING).verdict is None
    for number in (
        {"verdict": 0},
        {"p_correct": 0.5},
        {"verdict": 0, "p_correct": 0.5},
        {"verdict": 1, "p_correct": 1.0},
        {"p_calibrated": 0.5},
    ):
        with pytest.raises(ValidationError, match=r"belongs? to `scored`"):
            judgment(status=status, **{**NOTHING, **number})


@pytest.mark.parametrize(
    "fields",
    [NOTHING, {"verdict": None}, {"p_correct": None}, {"verdict": 2}, {"verdict": -1}, {"verdict": True, "p_correct": None},
     {"p_correct": 1.1}, {"p_correct": -0.1}, {"p_correct": math.nan}, {"label_mass": 1.1}, {"format_score": 2},
     {"p_calibrated": 1.1}, {"p_calibrated": math.nan}],
)  # fmt: skip
def test_a_scored_one_has_real_numbers(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        judgment(**fields)


def test_without_the_clock() -> None:
    timeless = judgment().without_clock()
    assert timeless.latency_ms is None
    assert timeless.searches[0].latency_ms is None
    assert timeless == judgment(latency_ms=77.0).without_clock()
    assert timeless.searches[0].passages == judgment().searches[0].passages


# ---- schemas ---------------------------------------------------------------------------------------------------------


def references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []


def test_schemas_are_whole() -> None:
    schemas = json_schemas()
    assert set(schemas) == {"Case", "Question", "Trace", "Passage", "Search", "Judgment"}
    for schema in schemas.values():
        assert schema["type"] == "object"
        assert json.loads(json.dumps(schema)) == schema
        for reference in references(schema):
            assert reference.removeprefix("#/$defs/") in schema["$defs"]
    assert schemas["Case"]["additionalProperties"] is False
    assert set(schemas["Judgment"]["required"]) >= {"status", "verdict", "p_correct", "seed", "judge_id"}
    assert set(schemas["Judgment"]["$defs"]["Status"]["enum"]) == set(Status)
    assert set(schemas["Judgment"]["$defs"]["StopReason"]["enum"]) == set(StopReason)
