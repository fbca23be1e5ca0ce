import json
import math
from pathlib import Path
from typing import Any

import pytest
from calibration_fakes import calibration
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from verifier_fakes import CASE, FakeRetriever, Turns, engine, judge

from verifier.calibration import Beta, Calibration, CalibrationError, Curve, Isotonic, Temperature, question_digest
from verifier.engines.base import EngineError
from verifier.judge import Judge
from verifier.types import Question, Status

P = st.floats(0, 1)
CURVES: list[Curve] = [
    Temperature(slope=0.0),
    Temperature(slope=0.4),
    Temperature(slope=30.0),
    Beta(a=0.5, b=1.5, c=-0.3),
    Beta(a=0.0, b=0.0, c=-1.0),
    Isotonic(p=[0.1, 0.4, 0.9], calibrated=[0.2, 0.2, 0.7]),
    Isotonic(p=[0.5], calibrated=[0.3]),
]


@given(P, P)
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.method)
def test_every_curve_gives_probabilities_and_never_falls(curve: Curve, one: float, other: float) -> None:
    low, high = (curve.apply(p) for p in sorted((one, other)))
    assert 0 <= low <= high + 1e-12
    assert high <= 1


@pytest.mark.parametrize(
    ("curve", "p", "value"),
    [
        (Temperature(slope=1), 0.7, 0.7),
        (Temperature(slope=0.5), 0.9, 0.75),  # odds 9 become odds 3
        (Temperature(slope=0), 0.9, 0.5),
        (Temperature(slope=0.5), 0.5, 0.5),
        (Beta(a=1, b=1, c=0), 0.7, 0.7),
        (Beta(a=1, b=1, c=math.log(3)), 0.25, 0.5),  # odds 1/3 become odds 1
        (Beta(a=2, b=1, c=0), 0.5, 1 / 3),  # 0.5 ** 2 against 0.5
        (Isotonic(p=[0.2, 0.6], calibrated=[0.1, 0.5]), 0.3, 0.2),
        (Isotonic(p=[0.2, 0.6], calibrated=[0.1, 0.5]), 0.2, 0.1),
        (Isotonic(p=[0.2, 0.6], calibrated=[0.1, 0.5]), 0.0, 0.1),
        (Isotonic(p=[0.2, 0.6], calibrated=[0.1, 0.5]), 0.6, 0.5),
        (Isotonic(p=[0.2, 0.6], calibrated=[0.1, 0.5]), 1.0, 0.5),
    ],
)
def test_by_hand(curve: Curve, p: float, value: float) -> None:
    assert curve.apply(p) == pytest.approx(value)


def test_certainty_is_kept_within_what_a_logarithm_bears() -> None:
    assert 0 < Temperature(slope=1).apply(0.0) < 1e-5
    assert 1 - 1e-5 < Beta(a=1, b=1, c=0).apply(1.0) < 1


@pytest.mark.parametrize(
    "curve",
    [
        {"method": "temperature", "slope": -1},
        {"method": "temperature", "slope": math.inf},
        {"method": "beta", "a": -0.1, "b": 1, "c": 0},
        {"method": "isotonic", "p": [0.2, 0.2], "calibrated": [0.1, 0.2]},
        {"method": "isotonic", "p": [0.2, 0.3], "calibrated": [0.2, 0.1]},
        {"method": "isotonic", "p": [0.2, 0.3], "calibrated": [0.2]},
        {"method": "isotonic", "p": [], "calibrated": []},
        {"method": "isotonic", "p": [0.2], "calibrated": [1.1]},
        {"method": "platt", "slope": 1},
        {"method": "temperature", "slope": 1, "shift": 0},
    ],
)
def test_a_curve_that_falls_or_is_unknown_is_refused(curve: dict[str, Any]) -> None:
    record = json.loads(calibration("j").to_json())
    with pytest.raises(ValidationError):
        Calibration.model_validate({**record, "curve": curve})


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="expected a probability"):
        calibration("j").apply(p)


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.method)
def test_a_file_is_read_back_as_it_was_written(tmp_path: Path, curve: Curve) -> None:
    made = calibration("j", curve)
    (tmp_path / "c.json").write_text(made.to_json())
    assert Calibration.load(tmp_path / "c.json") == made


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("", "is no calibration: the file: Invalid JSON"),
        ("{}", "is no calibration: judge_id: Field required"),
        (calibration("j").to_json().replace('"version": 1', '"version": 2'), "is no calibration: version"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "c.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CalibrationError, match=f"c.json.*{message}"):
        Calibration.load(path)


def test_a_description_says_what_it_is_without_its_questions() -> None:
    about = calibration("j").describe()
    assert about["method"] == "temperature"
    assert about["fitted"]["traces"] == 500
    assert "question_digests" not in about["fitted"]
    assert about["figures"]["Brier"]["after"]["value"] == 0.2


def test_a_question_is_known_by_its_content() -> None:
    question = Question(text="q?", options={"A": "yes"})
    assert question_digest(question) == question_digest(Question(text=" q? ", options={"A": "yes"}))
    others = [Question(text="q?"), Question(text="q!", options={"A": "yes"}), Question(text="q?", options={"A": "no"})]
    assert len({question_digest(one) for one in [question, *others]}) == 4


# ---- in a judge ------------------------------------------------------------------------------------------------------


def calibrated_judge(*turns: str | EngineError, curve: Curve | None = None) -> Judge:
    plain = judge(engine(Turns(*turns)))
    made = calibration(plain.judge_id, curve)
    return Judge(plain.engine, FakeRetriever(), plain.prompt, plain.mode, plain.settings, calibration=made)


async def test_a_judge_says_what_its_number_means_and_stays_the_same_judge() -> None:
    right = "<think>So it is.</think><answer>1</answer>"
    plain, calibrated = judge(engine(Turns(right))), calibrated_judge(right)
    before, after = await plain.verify(CASE), await calibrated.verify(CASE)
    assert before.p_calibrated is None
    assert after.p_correct == before.p_correct == pytest.approx(0.9)
    assert after.p_calibrated == pytest.approx(0.75)
    assert after.judge_id == before.judge_id
    assert after.verdict == before.verdict


async def test_a_failure_is_not_calibrated() -> None:
    failed = await calibrated_judge(EngineError("down")).verify(CASE)
    assert failed.status is Status.ENGINE_FAILED
    assert failed.p_correct is failed.p_calibrated is None


def test_the_calibration_of_another_judge_is_refused() -> None:
    plain = judge(engine(Turns()))
    with pytest.raises(CalibrationError, match=r"fitted for the judge other…, not for \w{12}…"):
        Judge(plain.engine, FakeRetriever(), plain.prompt, plain.mode, plain.settings, calibration=calibration("other"))
