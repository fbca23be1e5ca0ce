"""Do the 95 % intervals hold the truth in 95 of 100 cases, and how long do they take?

    python -m benchmarks.intervals [--repeats 500] [--sizes 30x10 100x29 500x3 1000x9]
    python -m benchmarks.intervals --paired [--repeats 500] [--sizes 30x10 100x10 300x10]

Packs are simulated whose truth is known: each question has a difficulty, which makes its traces right or wrong together, and a
lean, which moves the judge's p(1) on all of them alike. The truth is the metric over two million traces. Of every simulated pack
each metric that a report or `medverify score` shows has its interval as it is used, and so have the majority and any right.
Calibration errors are asked for three judges: one that leans, one that is too sure, and one that means what it says, whose error
is 0. With `--paired`, two equally good judges judge the same traces, which should be significant in 5 of 100.
"""

import argparse
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from eval.metrics import (
    Distance,
    Floats,
    Labels,
    Metric,
    accuracy,
    auprc,
    aurc,
    auroc,
    balanced_accuracy,
    bootstrap,
    brier,
    clustered_bootstrap,
    ece,
    ece_equal_mass,
    log_loss,
    paired_difference,
    smooth_ece,
)
from eval.metrics.draws import SAMPLES
from eval.metrics.metric import weighted_mean

METRICS: Mapping[str, Metric] = {
    "accuracy": accuracy,
    "balanced accuracy": balanced_accuracy,
    "AUROC": auroc,
    "AUPRC": auprc,
    "Brier": brier,
    "log loss": log_loss,
    "AURC": aurc,
    "ECE": ece,
    "ECE, equal mass": ece_equal_mass,
    "smooth ECE": smooth_ece,
}
MAJORITY, ANY_RIGHT = "majority", "any right"  # means over questions, as all votes and choices
LEANS, TOO_SURE, HONEST = "leans", "too sure", "means what it says"
_TRUTH_TRACES = 2_000_000


@dataclass(frozen=True, slots=True)
class Pack:
    """Simulated traces, those of a question side by side."""

    labels: Labels
    first: Floats  # p(1) of one judge
    second: Floats  # of another that is as good, and leans with the questions in its own way
    questions: list[str]

    def by_question(self) -> dict[str, Floats]:
        """Whether most traces, and whether any trace, of each question is right, [Q]."""
        labels_QT = self.labels.reshape(len(set(self.questions)), -1)
        most = (np.sign(labels_QT.mean(axis=1) - 0.5) + 1) / 2  # a half where they are split
        return {MAJORITY: most, ANY_RIGHT: labels_QT.max(axis=1).astype(np.float64)}


def simulate(questions: int, traces: int, random: np.random.Generator, judge: str = LEANS) -> Pack:
    """Draw a pack from the population whose truth is asked for."""
    names = np.repeat(np.arange(questions), traces).astype(str).tolist()
    if judge == HONEST:
        p_QT = _sigmoid(random.normal(-0.2, 1.2, (questions, 1)) + random.normal(0, 0.8, (questions, traces)))
        return Pack((random.random(p_QT.shape) < p_QT).astype(np.int64).ravel(), p_QT.ravel(), p_QT.ravel(), names)
    difficulty_Q1 = random.normal(0.3, 1.5, size=(questions, 1))
    labels_QT = (random.random((questions, traces)) < _sigmoid(-difficulty_Q1)).astype(np.int64)
    shared_QT = random.normal(0, 0.7, size=(questions, traces))  # what both judges see in a trace
    slope, shift = (2.5, 0.5) if judge == TOO_SURE else (1.0, 0.0)

    def judged() -> Floats:
        lean_Q1, noise_QT = random.normal(0, 0.8, size=(questions, 1)), random.normal(0, 0.7, size=(questions, traces))
        return _sigmoid(slope * (0.9 * (2 * labels_QT - 1) + lean_Q1 + shared_QT + noise_QT) + shift).ravel()

    return Pack(labels_QT.ravel(), judged(), judged(), names)


def main() -> None:
    """Measure and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=500, help="simulated packs of each size")
    parser.add_argument("--sizes", nargs="+", default=["30x10", "100x29", "500x3", "1000x9"], help="questions x traces")
    parser.add_argument("--judges", nargs="+", default=[LEANS, TOO_SURE, HONEST])
    parser.add_argument("--draws", type=int, default=SAMPLES, help="of the bootstrap; reports have 1,000")
    parser.add_argument("--metrics", nargs="+", default=[*METRICS, MAJORITY, ANY_RIGHT], help="names as in the table")
    parser.add_argument("--paired", action="store_true", help="how often equal judges seem to differ, instead")
    options = parser.parse_args()
    print(f"{options.repeats} packs, Monte-Carlo error {np.sqrt(0.95 * 0.05 / options.repeats):.3f}\n")
    if options.paired:
        print("| questions x traces | metric | significant at 5 % |\n|---|---|---|")
    else:
        print("| judge | questions x traces | metric | truth | mean value | mean width | below | above | coverage |")
        print("|---" * 9 + "|")
    for judge in [LEANS] if options.paired else options.judges:
        for size in options.sizes:
            questions, traces = map(int, size.split("x"))
            if options.paired:
                _print_paired(questions, traces, options.repeats, options.metrics)
            else:
                _print_coverage(judge, questions, traces, options)
    if not options.paired:
        _time_them(options.metrics)


def _print_coverage(judge: str, questions: int, traces: int, options: argparse.Namespace) -> None:
    """How often each interval holds the truth, and how often it lies below or above it."""
    names, draws = options.metrics, options.draws
    metrics = {
        name: metric
        for name, metric in METRICS.items()
        if name in names and (judge == LEANS or isinstance(metric, Distance))
    }
    truth = {name: value for name, value in _truth(judge, traces, metrics).items() if name in names}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in truth}
    for repeat in range(options.repeats):
        pack = simulate(questions, traces, np.random.default_rng([questions, traces, repeat]), judge)
        estimates = {
            name: clustered_bootstrap(metric, pack.labels, pack.first, pack.questions, samples=draws, seed=repeat)
            for name, metric in metrics.items()
        }
        for name, each in pack.by_question().items():
            if name in truth:
                estimates[name] = bootstrap(
                    _mean_of(each), [str(row) for row in range(len(each))], samples=draws, seed=repeat
                )
        for name, estimate in estimates.items():
            found[name].append((estimate.value, estimate.low, estimate.high))
    for name, rows in found.items():
        value, low, high = np.array(rows).T
        below, above = (high < truth[name] - 1e-4).mean(), (low > truth[name] + 1e-4).mean()
        shown = f"{truth[name]:.4f} | {value.mean():.4f} | {(high - low).mean():.4f} | {below:.3f} | {above:.3f}"
        print(f"| {judge} | {questions}x{traces} | {name} | {shown} | {1 - below - above:.3f} |", flush=True)


def _print_paired(questions: int, traces: int, repeats: int, names: Collection[str]) -> None:
    tested = {name: metric for name, metric in METRICS.items() if name in names and not isinstance(metric, Distance)}
    differ = dict.fromkeys(tested, 0)
    for repeat in range(repeats):
        pack = simulate(questions, traces, np.random.default_rng([questions, traces, repeat]))
        for name, metric in tested.items():
            found = paired_difference(metric, pack.labels, pack.first, pack.second, pack.questions, seed=repeat)
            differ[name] += found.p_value < 0.05
    for name, count in differ.items():
        print(f"| {questions}x{traces} | {name} | {count / repeats:.3f} |", flush=True)


def _truth(judge: str, traces: int, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Over so many questions that the error is far below what is looked for; 0 by construction for who means what it says."""
    if judge == HONEST:
        return dict.fromkeys(metrics, 0.0)
    pack = simulate(_TRUTH_TRACES // traces, traces, np.random.default_rng(0), judge)
    truth = {name: metric(pack.labels, pack.first) for name, metric in metrics.items()}
    by_question = {name: float(each.mean()) for name, each in pack.by_question().items()}
    return truth | (by_question if judge == LEANS else {})


def _mean_of(values: Floats) -> Callable[[Floats], Floats]:
    return lambda weights: weighted_mean(values, weights)


def _time_them(names: Collection[str]) -> None:
    pack = simulate(1000, 10, np.random.default_rng(1))
    print("\n| 10,000 traces of 1,000 questions, 1,000 draws | seconds |\n|---|---|")
    for name, metric in ((name, metric) for name, metric in METRICS.items() if name in names):
        start = time.perf_counter()
        clustered_bootstrap(metric, pack.labels, pack.first, pack.questions)
        print(f"| {name} | {time.perf_counter() - start:.2f} |", flush=True)


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


if __name__ == "__main__":
    main()
