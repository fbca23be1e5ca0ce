import math

import numpy as np
import pytest
from eval_fakes import judgment

from eval.calibrate import METHODS, Method, admitted, calibrate, cross_fit, fit
from eval.folds import question_folds
from eval.metrics import Floats, Labels, auroc, brier, ece, log_loss
from eval.quality import calibrated
from verifier.calibration import Beta, Calibration, CalibrationError, Isotonic, Temperature, question_digest
from verifier.packs import LabelledCase
from verifier.types import Case, Judgment


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def simulated(questions: int, slope: float, shift: float = 0.0, seed: int = 0) -> tuple[Labels, Floats, list[str]]:
    """Five traces a question; the truth is `sigmoid(slope * logit(p) + shift)`."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, 5 * questions)
    labels = (random.random(5 * questions) < sigmoid(slope * logits + shift)).astype(np.int64)
    return labels, sigmoid(logits), [f"q{row // 5}" for row in range(5 * questions)]


def pack(labels: Labels, p: Floats, questions: list[str]) -> tuple[list[Judgment], list[LabelledCase]]:
    cases = [
        LabelledCase(Case(id=f"t{row}", question=f"About {question}?", trace="t"), int(label), question)  # type: ignore[arg-type]
        for row, (label, question) in enumerate(zip(labels, questions, strict=True))
    ]
    judgments = [judgment(one.case.id, float(value), one.case) for one, value in zip(cases, p, strict=True)]
    return judgments, cases


def test_temperature_is_found() -> None:
    labels, p, questions = simulated(4000, slope=0.5)
    found = fit(labels, p, questions, ["temperature"])
    assert isinstance(found, Temperature)
    assert found.slope == pytest.approx(0.5, abs=0.02)


def test_beta_is_found() -> None:
    labels, p, questions = simulated(4000, slope=0.5, shift=-1)
    found = fit(labels, p, questions, ["beta"])
    assert isinstance(found, Beta)
    assert (found.a, found.b, found.c) == pytest.approx((0.5, 0.5, -1), abs=0.1)


def test_isotonic_is_found_and_never_sure() -> None:
    labels, p, questions = simulated(4000, slope=0.5, shift=-1)
    found = fit(labels, p, questions, ["isotonic"])
    assert isinstance(found, Isotonic)
    grid = np.linspace(0.1, 0.9, 9)
    truth = sigmoid(0.5 * np.log(grid / (1 - grid)) - 1)
    assert calibrated(found, grid) == pytest.approx(truth, abs=0.05)
    assert 0 < min(found.calibrated) <= max(found.calibrated) < 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "labels", [[0, 1] * 40, [0] * 40 + [1] * 40, [1] * 40 + [0] * 40], ids=["none", "all", "upside"]
)
def test_extremes_give_a_curve_all_the_same(method: Method, labels: list[int]) -> None:
    """A judge that knows nothing, one that knows all, and one that is always wrong."""
    p, gold = np.linspace(0, 1, 80), np.asarray(labels, dtype=np.int64)
    curve = fit(gold, p, [f"q{row}" for row in range(80)], [method])
    values = calibrated(curve, p)
    assert (np.diff(values) >= -1e-12).all()
    assert ((values >= 0) & (values <= 1)).all()
    if labels[0] == 1:  # no rising curve does better than a level one
        assert values == pytest.approx(np.full(80, values[0]))


def test_a_constant_judge_gives_the_base_rate() -> None:
    labels = np.asarray([1] * 30 + [0] * 70, dtype=np.int64)
    for method in ("beta", "isotonic"):
        curve = fit(labels, np.full(100, 0.8), [f"q{row}" for row in range(100)], [method])  # type: ignore[list-item]
        assert curve.apply(0.8) == pytest.approx(0.3, abs=0.02)


def test_what_was_not_judged_stays_so() -> None:
    assert math.isnan(calibrated(Temperature(slope=1), np.asarray([math.nan, 0.5]))[0])


def test_out_of_fold_means_that_no_question_had_a_part_in_its_own_curve() -> None:
    labels, p, questions = simulated(40, slope=1)
    before = cross_fit(labels, p, questions, ["isotonic"])
    mine = np.asarray(questions) == "q7"
    changed = np.where(mine, 1 - labels, labels)
    after = cross_fit(changed, p, questions, ["isotonic"])
    assert (before[mine] == after[mine]).all()
    assert (before[~mine] != after[~mine]).any()


def test_folds_keep_questions_together_and_do_not_depend_on_the_order_of_rows() -> None:
    questions = [f"q{row % 23}" for row in range(200)]
    folds = question_folds(questions, seed=3)
    of = dict(zip(questions, folds.tolist(), strict=True))
    assert [of[question] for question in questions] == folds.tolist()
    assert sorted(np.bincount(list(of.values())).tolist()) == [4, 4, 5, 5, 5]
    assert question_folds(questions[::-1], seed=3).tolist() == folds.tolist()[::-1]
    assert question_folds(questions, seed=4).tolist() != folds.tolist()


def test_auto_takes_the_method_that_fits() -> None:
    symmetric, shifted = simulated(1000, slope=0.4), simulated(1000, slope=0.4, shift=-1.5)
    assert fit(*shifted, ["temperature", "beta"]).method == "beta"
    losses = {m: log_loss(symmetric[0], cross_fit(*symmetric, [m])) for m in METHODS}
    assert fit(*symmetric, METHODS).method == min(losses, key=losses.__getitem__)


def test_a_calibration_mends_what_it_should_and_says_so_out_of_fold() -> None:
    labels, p, questions = simulated(200, slope=0.3, shift=-0.5)
    made = calibrate(*pack(labels, p, questions), "dev")
    assert made.judge_id == "j"
    assert (made.fitted.pack, made.fitted.questions, made.fitted.traces) == ("dev", 200, 1000)
    assert made.fitted.right == labels.sum()
    assert set(made.figures) == {"Brier", "log loss", "ECE", "smooth ECE"}
    for name, metric in (("Brier", brier), ("log loss", log_loss), ("ECE", ece)):
        figure = made.figures[name]
        assert figure.before.value == pytest.approx(metric(labels, p))
        assert figure.after.value == pytest.approx(metric(labels, cross_fit(labels, p, questions, METHODS)))
        assert figure.change.high < 0
        assert (figure.p_value is None) if name == "ECE" else (figure.p_value < 0.01)
    assert Calibration.model_validate_json(made.to_json()) == made
    values = calibrated(made.curve, p)
    assert auroc(labels, values) == pytest.approx(auroc(labels, p), abs=0.01)


def test_figures_of_a_judge_that_knows_nothing_do_not_flatter() -> None:
    """Isotonic regression fits noise: in-sample it looks better than the base rate, out of fold it must not."""
    random = np.random.default_rng(0)
    labels, p = random.integers(0, 2, 600), random.random(600)
    questions = [f"q{row // 3}" for row in range(600)]
    made = calibrate(*pack(labels, p, questions), "dev", ["isotonic"])
    in_sample = brier(labels, calibrated(made.curve, p))
    assert in_sample < 0.25 < made.figures["Brier"].after.value


def test_the_same_judgments_give_the_same_file() -> None:
    judgments, cases = pack(*simulated(60, slope=0.5))
    assert calibrate(judgments, cases, "dev", ["beta"]) == calibrate(judgments[::-1], cases, "dev", ["beta"])


def test_it_remembers_the_questions_by_their_content() -> None:
    judgments, cases = pack(*simulated(60, slope=0.5))
    judgments[-5:] = [judgment(one.id, None, case.case) for one, case in zip(judgments[-5:], cases[-5:], strict=True)]
    made = calibrate(judgments, cases, "dev")
    known = {question_digest(one.case.question) for one in cases[:-5]}  # the last question was not judged
    assert set(made.fitted.question_digests) == known
    assert made.fitted.questions == len(known) == 59


# ---- too little ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "wrong", "questions", "methods", "message"),
    [
        (29, 300, 300, METHODS, "29 right and 300 wrong traces of 300 questions; needed are 30 of each"),
        (300, 29, 300, METHODS, "300 right and 29 wrong"),
        (300, 199, 300, ["isotonic"], r"needed are 200 of each \(isotonic\)"),
        (300, 300, 19, METHODS, "of 19 questions; needed are .* and 20 questions"),
        (0, 0, 0, METHODS, "0 right and 0 wrong"),
    ],
)
def test_too_little_is_refused(right: int, wrong: int, questions: int, methods: list[Method], message: str) -> None:
    labels = np.asarray([1] * right + [0] * wrong, dtype=np.int64)
    with pytest.raises(CalibrationError, match=message):
        admitted(labels, [f"q{row % questions}" for row in range(right + wrong)], methods)


def test_of_several_methods_those_with_enough_traces_are_tried() -> None:
    labels = np.asarray([1] * 100 + [0] * 100, dtype=np.int64)
    questions = [f"q{row}" for row in range(200)]
    assert admitted(labels, questions, METHODS) == ("temperature", "beta")
    assert admitted(np.tile(labels, 2), questions * 2, METHODS) == METHODS


def test_two_judges_are_not_one() -> None:
    judgments, cases = pack(*simulated(60, slope=0.5))
    judgments[0] = judgments[0].model_copy(update={"judge_id": "other"})
    with pytest.raises(CalibrationError, match="by 2 judges"):
        calibrate(judgments, cases, "dev")


def test_no_judgment_at_all_is_too_little() -> None:
    with pytest.raises(CalibrationError, match="0 right and 0 wrong"):
        calibrate([], [], "dev")
