import math

import numpy as np
import pytest
from metric_rows import labels_of, scores_of

from eval.metrics import (
    Estimate,
    Floats,
    Labels,
    Metric,
    accuracy,
    auprc,
    aurc,
    auroc,
    balanced_accuracy,
    brier,
    clustered_bootstrap,
    ece,
    ece_equal_mass,
    log_loss,
    paired_difference,
    resample,
    smooth_ece,
)
from eval.metrics.intervals import Method
from eval.metrics.metric import weighted_mean

BCA_AND_PLAIN: tuple[Method, ...] = ("bca", "percentile")
METHODS: tuple[Method, ...] = ("percentile", "bca", "pivotal")


@Metric
def mean(_: Labels, scores: Floats, weights: Floats) -> Floats:
    """Mean score."""
    return weighted_mean(scores, weights)


def interval(
    metric: Metric, labels: Labels, scores: Floats, clusters: list[str], method: Method, **how: int
) -> Estimate:
    return resample(lambda weights: metric.weighted(labels, scores, weights), clusters, **how).interval(method)


RANDOM = np.random.default_rng(3)
LABELS = labels_of(RANDOM.integers(0, 2, 80))
SCORES = scores_of(np.clip(LABELS * 0.2 + RANDOM.random(80), 0, 1))
ALONE = [f"q{row}" for row in range(80)]
TOGETHER = [f"q{row // 8}" for row in range(80)]


@pytest.mark.parametrize("method", METHODS)
def test_the_interval_holds_the_value_and_is_the_same_each_time(method: Method) -> None:
    first, second = (interval(auroc, LABELS, SCORES, TOGETHER, method) for _ in range(2))
    assert first == second
    assert first.value == auroc(LABELS, SCORES)
    assert first.low < first.value < first.high
    assert interval(auroc, LABELS, SCORES, TOGETHER, method, seed=1) != first


@pytest.mark.parametrize("metric", [accuracy, balanced_accuracy, auroc, auprc, brier, log_loss, ece, smooth_ece, aurc])
def test_weights_give_what_repeated_rows_give(metric: Metric) -> None:
    """The quick way and the plain way: a draw is a number of copies of each question's rows."""
    scores = np.round(SCORES * 8) / 8  # with ties

    def plain(weights: Floats) -> Floats:
        rows = [np.repeat(np.arange(80), counts.astype(np.int64)) for counts in weights]
        return scores_of([metric(LABELS[drawn], scores[drawn]) for drawn in rows])

    quick = resample(lambda weights: metric.weighted(LABELS, scores, weights), TOGETHER, samples=60)
    slow = resample(plain, TOGETHER, samples=60)
    assert quick.draws == pytest.approx(slow.draws)
    assert quick.jackknife == pytest.approx(slow.jackknife)


def test_any_function_of_labels_and_scores_has_an_interval() -> None:
    def plain(labels: Labels, scores: Floats) -> float:
        return auroc(labels, scores)

    quick, slow = (clustered_bootstrap(one, LABELS, SCORES, TOGETHER, samples=60) for one in (auroc, plain))
    assert (quick.value, quick.low, quick.high) == pytest.approx((slow.value, slow.low, slow.high))


def test_draws_do_not_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = clustered_bootstrap(auroc, LABELS, SCORES, TOGETHER)
    monkeypatch.setattr("eval.metrics.draws._AT_ONCE", 80 * 7)
    assert clustered_bootstrap(auroc, LABELS, SCORES, TOGETHER) == whole


@pytest.mark.parametrize("method", METHODS)
def test_copies_are_no_evidence(method: Method) -> None:
    """Ten questions with eight copies each know no more than ten questions: the interval must not be narrower."""
    ten = scores_of(RANDOM.random(10))
    copies = np.repeat(ten, 8)
    honest = interval(mean, LABELS[:10], ten, ALONE[:10], method)
    clustered = interval(mean, LABELS, copies, TOGETHER, method)
    naive = interval(mean, LABELS, copies, ALONE, method)
    assert (clustered.low, clustered.high) == pytest.approx((honest.low, honest.high))
    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)


def test_the_order_of_rows_and_the_names_of_questions_do_not_matter() -> None:
    one = clustered_bootstrap(mean, LABELS, SCORES, TOGETHER)
    assert one == clustered_bootstrap(mean, LABELS, SCORES, [f"a{name}" for name in TOGETHER])
    order = np.random.default_rng(0).permutation(80)
    other = clustered_bootstrap(mean, LABELS[order], SCORES[order], [TOGETHER[row] for row in order])
    assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high))


@pytest.mark.parametrize("method", METHODS)
def test_the_interval_covers_the_truth_about_as_often_as_it_says(method: Method) -> None:
    random, covered, clusters = np.random.default_rng(5), 0, [f"q{row // 3}" for row in range(90)]
    for _ in range(200):
        scores = scores_of(np.repeat(random.normal(size=30), 3) + random.normal(size=90))
        estimate = interval(mean, np.ones(90, np.int64), scores, clusters, method, samples=200)
        covered += estimate.low <= 0 <= estimate.high
    assert 179 <= covered <= 199  # 190 and three standard deviations


def test_a_mean_of_normal_values_has_student_s_interval() -> None:
    """With few questions the interval is as wide as t says, not as narrow as the draws."""
    values = scores_of(np.random.default_rng(8).normal(size=12))
    found = interval(mean, np.ones(12, np.int64), values, ALONE[:12], "percentile", samples=20_000)
    half = 2.201 * values.std(ddof=1) / math.sqrt(12)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.08)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.06)


def test_bca_leans_towards_the_long_tail() -> None:
    values = scores_of(np.random.default_rng(2).exponential(size=40))
    found, plain = (
        interval(mean, np.ones(40, np.int64), values, ALONE[:40], method, samples=4000) for method in BCA_AND_PLAIN
    )
    assert found.low > plain.low
    assert found.high > plain.high


@pytest.mark.parametrize("method", METHODS)
def test_draws_without_a_value_are_left_out_and_what_is_undefined_has_no_interval(method: Method) -> None:
    two = interval(auroc, labels_of([0, 1]), scores_of([0.2, 0.8]), ["a", "b"], method)
    assert (two.value, two.low, two.high) == (1.0, 1.0, 1.0)
    for labels, clusters in (([1, 1], ["a", "b"]), ([], [])):
        none = interval(auroc, labels_of(labels), scores_of([0.5] * len(labels)), clusters, method)
        assert all(math.isnan(value) for value in (none.value, none.low, none.high))


def test_one_question_says_nothing_of_others() -> None:
    one = clustered_bootstrap(accuracy, labels_of([0, 1]), scores_of([0.2, 0.3]), ["a", "a"])
    assert one.value == 0.5
    assert math.isnan(one.low)
    assert math.isnan(one.high)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        clustered_bootstrap(brier, labels_of([0, 1]), scores_of([0.2, math.nan]), ["a", "b"])
    with pytest.raises(ValueError, match="labels are 0 or 1"):
        paired_difference(brier, labels_of([0, -1]), scores_of([0.2, 0.1]), scores_of([0.2, 0.1]), ["a", "b"])


@pytest.mark.parametrize("metric", [ece, ece_equal_mass, smooth_ece])
def test_a_calibration_error_is_not_inflated_twice(metric: Metric) -> None:
    """An honest judge: the error found is all chance and its draws are higher still, so the interval must lie lower than they."""
    random = np.random.default_rng(9)
    p = random.random(300)
    honest = labels_of(random.random(300) < p)
    questions = [f"q{row // 3}" for row in range(300)]
    draws = resample(lambda weights: metric.weighted(honest, p, weights), questions).draws
    found = clustered_bootstrap(metric, honest, p, questions)
    assert found.value < np.median(draws)
    assert 0 <= found.low < np.quantile(draws, 0.025)
    assert found.low <= found.value <= found.high < np.quantile(draws, 0.975)


@pytest.mark.parametrize("metric", [ece, ece_equal_mass, smooth_ece])
def test_far_from_0_a_distance_is_as_sure_as_a_mean(metric: Metric) -> None:
    """A judge that always says 0.9: its error is the share of right traces less 0.9, whose interval is known."""
    said, right = np.full(240, 0.9), labels_of(np.random.default_rng(11).random(240) < 0.3)
    questions = [f"q{row // 3}" for row in range(240)]
    found = clustered_bootstrap(metric, right, said, questions)
    plain = interval(mean, right, 0.9 - scores_of(right), questions, "percentile")
    assert (found.value, found.low, found.high) == pytest.approx((plain.value, plain.low, plain.high), abs=0.006)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_distance_s_interval_holds_the_judge_s_error(shift: float) -> None:
    """Of a judge that means what it says, 0; and of one that is too sure of right traces, where that can be computed."""
    random, truth, held = np.random.default_rng(12), 0.0, 0
    questions = [f"q{row // 4}" for row in range(320)]

    def judged(count: int) -> tuple[Labels, Floats]:
        means = np.repeat(random.normal(0, 1, count), 4) + random.normal(0, 0.7, 4 * count)
        right = random.random(4 * count) < 1 / (1 + np.exp(-means))
        return labels_of(right), 1 / (1 + np.exp(-means - shift))

    if shift:
        truth = ece(*judged(100_000))
    for _ in range(80):
        found = clustered_bootstrap(ece, *judged(80), questions, samples=200)
        held += found.low <= truth <= found.high
    assert held >= 73  # 76 and one and a half standard deviations


def test_one_question_says_nothing_of_a_distance() -> None:
    one = clustered_bootstrap(ece, labels_of([0, 1]), scores_of([0.2, 0.3]), ["a", "a"])
    assert one.value == pytest.approx((0.2 + 0.7) / 2)
    assert math.isnan(one.low)
    none = clustered_bootstrap(ece, labels_of([]), scores_of([]), [])
    assert all(math.isnan(value) for value in (none.value, none.low, none.high))


# ---- two judges ------------------------------------------------------------------------------------------------------


def test_a_judge_does_not_differ_from_itself() -> None:
    same = paired_difference(auroc, LABELS, SCORES, SCORES, TOGETHER)
    assert same.first == same.second == auroc(LABELS, SCORES)
    assert (same.difference.value, same.difference.low, same.difference.high) == (0, 0, 0)
    assert same.p_value == pytest.approx(1)


def test_the_difference_turns_round_with_the_judges() -> None:
    other = scores_of(np.clip(SCORES + RANDOM.normal(0, 0.3, 80), 0, 1))
    one, back = (
        paired_difference(brier, LABELS, SCORES, other, TOGETHER),
        paired_difference(brier, LABELS, other, SCORES, TOGETHER),
    )
    assert one.difference.value == pytest.approx(-back.difference.value)
    assert one.difference.low == pytest.approx(-back.difference.high, abs=1e-3)
    assert one.p_value == pytest.approx(back.p_value, abs=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.01, 0.02, 0.03, 0.05, 0.08])
def test_the_p_value_and_the_interval_tell_the_same_story(shift: float) -> None:
    better = scores_of(SCORES + shift * (2 * LABELS - 1) + np.random.default_rng(1).normal(0, 0.08, 80))
    found = paired_difference(brier, LABELS, SCORES, better, TOGETHER)
    assert (found.difference.low <= 0 <= found.difference.high) == (found.p_value >= 0.05)


def test_calibration_errors_are_compared_without_a_test() -> None:
    found = paired_difference(ece, LABELS, SCORES, SCORES / 2, TOGETHER)
    assert found.difference.value == pytest.approx(ece(LABELS, SCORES) - ece(LABELS, SCORES / 2))
    assert found.difference.low < found.difference.high
    assert math.isnan(found.p_value)


def test_a_paired_difference_is_surer_than_two_intervals() -> None:
    """What makes questions hard for both judges cancels out."""
    random = np.random.default_rng(4)
    hard = np.repeat(random.normal(size=40), 5)
    labels = labels_of(random.integers(0, 2, 200))
    first = 1 / (1 + np.exp(-(hard + labels)))
    second = 1 / (1 + np.exp(-(hard + 0.7 * labels)))
    questions = [f"q{row // 5}" for row in range(200)]
    found = paired_difference(auroc, labels, first, second, questions)
    one = clustered_bootstrap(auroc, labels, first, questions)
    assert found.difference.high - found.difference.low < (one.high - one.low) / 2
    assert found.p_value < 0.01


def test_equal_judges_seldom_seem_to_differ() -> None:
    random, significant, questions = np.random.default_rng(6), 0, [f"q{row // 3}" for row in range(90)]
    for _ in range(200):
        lean = np.repeat(random.normal(size=(2, 30)), 3, axis=1)
        first, second = lean + random.normal(size=(2, 90))
        found = paired_difference(mean, np.ones(90, np.int64), first, second, questions, samples=200)
        significant += found.p_value < 0.05
    assert 1 <= significant <= 21  # 10 and more than three standard deviations


def test_a_p_value_is_never_smaller_than_the_draws_can_tell() -> None:
    resampled = resample(lambda weights: weights @ np.ones(80) / weights.sum(axis=1), ALONE, samples=99)
    assert 1 / 99 <= resampled.p_value() <= 2 / 99
