"""Do the 95 % intervals hold the truth in 95 of 100 cases, and how long do they take?

    python -m benchmarks.intervals [--repeats 1000] [--questions 30 100 300]

Packs are simulated whose truth is known: each question has a difficulty, which makes its traces right or wrong together, and a
lean, which moves the judge's p(1) on all of them alike. The truth is the metric over two million questions. Of every simulated
pack the interval is computed in each way from the same draws (metrics use `bca`, the ECE `pivotal`), and so is the paired test of
two judges that are equally good and judge the same traces, which should be significant in 5 of 100.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

from eval.metrics import (
    Floats,
    Labels,
    Metric,
    Resampled,
    accuracy,
    auprc,
    aurc,
    auroc,
    brier,
    ece,
    paired_difference,
    resample,
    smooth_ece,
)
from eval.metrics.intervals import Method

METRICS: dict[str, Metric] = {"accuracy": accuracy, "AUROC": auroc, "Brier": brier, "ECE": ece}
METHODS: tuple[Method, ...] = ("percentile", "bca", "pivotal")
TRACES = 10  # of a question
_TRUTH_QUESTIONS = 2_000_000


@dataclass(frozen=True, slots=True)
class Pack:
    """Simulated traces, those of a question side by side."""

    labels: Labels
    first: Floats  # p(1) of one judge
    second: Floats  # of another that is as good, and leans with the questions in its own way
    questions: list[str]


def simulate(questions: int, random: np.random.Generator, traces: int = TRACES) -> Pack:
    """Draw a pack from the population whose truth is asked for."""
    difficulty_Q1 = random.normal(0.3, 1.5, size=(questions, 1))
    labels_QT = (random.random((questions, traces)) < _sigmoid(-difficulty_Q1)).astype(np.int64)
    shared_QT = random.normal(0, 0.7, size=(questions, traces))  # what both judges see in a trace

    def judged() -> Floats:
        lean_Q1, noise_QT = random.normal(0, 0.8, size=(questions, 1)), random.normal(0, 0.7, size=(questions, traces))
        return _sigmoid(0.9 * (2 * labels_QT - 1) + lean_Q1 + shared_QT + noise_QT).ravel()

    names = np.repeat(np.arange(questions), traces).astype(str).tolist()
    return Pack(labels_QT.ravel(), judged(), judged(), names)


def main() -> None:
    """Measure and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1000, help="simulated packs of each size")
    parser.add_argument("--questions", type=int, nargs="+", default=[30, 100, 300])
    options = parser.parse_args()
    truth = _truth()
    print(f"truth: {', '.join(f'{name} {value:.4f}' for name, value in truth.items())}")
    error = np.sqrt(0.95 * 0.05 / options.repeats)
    print(
        f"\ncoverage of 95 % intervals, {options.repeats} packs of {TRACES} traces a question, Monte-Carlo error {error:.3f}\n"
    )
    print(f"| questions | metric | {' | '.join(METHODS)} | paired test significant at 5 % |")
    print("|---" * (len(METHODS) + 3) + "|")
    for questions in options.questions:
        for name, (covered, significant) in coverage(questions, options.repeats, truth).items():
            shown = " | ".join(f"{share:.3f}" for share in [*covered, significant])
            print(f"| {questions} | {name} | {shown} |", flush=True)
    _time_them()


def coverage(questions: int, repeats: int, truth: dict[str, float]) -> dict[str, tuple[list[float], float]]:
    """For each metric: how often each method's interval holds the truth, and how often two equal judges seem to differ."""
    held = {name: np.zeros(len(METHODS)) for name in METRICS}
    differ = dict.fromkeys(METRICS, 0)
    for repeat in range(repeats):
        pack = simulate(questions, np.random.default_rng([questions, repeat]))
        for name, metric in METRICS.items():
            one = _resampled(metric, pack, pack.first, repeat)
            intervals = [one.interval(method) for method in METHODS]
            held[name] += [found.low <= truth[name] <= found.high for found in intervals]
            found = paired_difference(metric, pack.labels, pack.first, pack.second, pack.questions, seed=repeat)
            differ[name] += found.p_value < 0.05
    return {name: ((held[name] / repeats).tolist(), differ[name] / repeats) for name in METRICS}


def _resampled(metric: Metric, pack: Pack, p: Floats, seed: int) -> Resampled:
    return resample(lambda weights: metric.weighted(pack.labels, p, weights), pack.questions, seed=seed)


def _truth() -> dict[str, float]:
    """Over so many questions that the error is far below what is looked for."""
    pack = simulate(_TRUTH_QUESTIONS, np.random.default_rng(0), traces=2)
    return {name: metric(pack.labels, pack.first) for name, metric in METRICS.items()}


def _time_them() -> None:
    pack = simulate(1000, np.random.default_rng(1))
    print("\n| 10,000 traces of 1,000 questions, 1,000 draws | seconds |\n|---|---|")
    every = {**METRICS, "smooth ECE": smooth_ece, "AUPRC": auprc, "AURC": aurc}
    for name, metric in every.items():
        start = time.perf_counter()
        _resampled(metric, pack, pack.first, 0).interval()
        print(f"| {name} | {time.perf_counter() - start:.2f} |", flush=True)


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


if __name__ == "__main__":
    main()
