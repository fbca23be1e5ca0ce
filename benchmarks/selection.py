"""Selection over a million made-up traces: seconds, and the most memory that the process ever had resident.

    python -m benchmarks.selection [--questions 31250] [--traces 32] [--sizes 1,2,4,8,16,32] [--draws 64]

Every strategy at every size, with any right and the mean. Afterwards the same over all subsets, one after the other, with
`verifier.selection.select`, for a few questions and one size, and what both come to.
"""

import argparse
import itertools
import math
import resource
import statistics
import time

import numpy as np

from eval.candidates import Candidates
from eval.closed_forms import any_right_at, mean_accuracy
from eval.scaling import scaling
from verifier.selection import Strategy, select

_OPTIONS = 4


def main() -> None:
    """Make up, select, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=31_250)
    parser.add_argument("--traces", type=int, default=32, help="of each question")
    parser.add_argument("--sizes", default="1,2,4,8,16,32")
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--brute-questions", type=int, default=10)
    parser.add_argument("--brute-size", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    batch = made_up(options.questions, options.traces, options.seed)
    before, seconds, busy = _peak(), [], []
    for _ in range(options.runs):
        started, worked = time.perf_counter(), time.process_time()
        curves = scaling(batch, sizes, draws=options.draws, seed=options.seed)
        anything = [any_right_at(batch.right, batch.counts, size).mean() for size in sizes]
        mean = mean_accuracy(batch.right, batch.counts).mean()
        seconds.append(time.perf_counter() - started)
        busy.append(time.process_time() - worked)
    print(f"{batch.present_QM.sum():,} traces of {options.questions:,} questions, {options.draws} draws")
    for name, values in (("wall clock", seconds), ("processor", busy)):
        print(f"{name}, {options.runs} runs: least {min(values):.1f} s, median {statistics.median(values):.1f} s")
    print(f"most resident: {_peak():.0f} MiB, {before:.0f} of them before\n")
    print(f"| n | {' | '.join(map(str, sizes))} |\n|---|{'---|' * len(sizes)}")
    for strategy, accuracies in curves.items():
        print(f"| {strategy} | {' | '.join(f'{value:.3f}' for value in accuracies.mean(axis=1))} |")
    print(f"| any right | {' | '.join(f'{value:.3f}' for value in anything)} |")
    print(f"| mean | {' | '.join(f'{mean:.3f}' for _ in sizes)} |\n")
    one_by_one(batch, options.brute_questions, options.brute_size)


def made_up(questions: int, traces: int, seed: int) -> Candidates:
    """Questions of unequal difficulty, a judge that is somewhat better than chance, some answers unreadable, some not judged."""
    random = np.random.default_rng(seed)
    shape = questions, traces
    gold_Q = random.integers(_OPTIONS, size=questions)
    skill_Q1 = random.beta(2, 2, size=(questions, 1))
    right_QM = random.random(shape) < skill_Q1
    answers_QM = np.where(right_QM, gold_Q[:, None], random.integers(_OPTIONS, size=shape))
    answers_QM[random.random(shape) < 0.05] = -1
    p_QM = 1 / (1 + np.exp(-(random.normal(size=shape) + np.where(answers_QM == gold_Q[:, None], 0.7, -0.7))))
    p_QM[random.random(shape) < 0.02] = np.nan
    verdicts_QM = np.where(np.isnan(p_QM), -1, (p_QM > 0.5).astype(np.int64))
    return Candidates(answers_QM, np.ones(shape, dtype=np.bool_), p_QM, verdicts_QM, gold_Q)


def one_by_one(batch: Candidates, questions: int, size: int) -> None:
    """Time the definition, over all subsets of a size."""
    few = Candidates(
        batch.answers_QM[:questions], batch.present_QM[:questions], batch.p_QM[:questions],
        batch.verdicts_QM[:questions], batch.gold_Q[:questions],
    )  # fmt: skip
    started = time.process_time()
    ours = scaling(few, [size], draws=math.comb(few.answers_QM.shape[1], size))
    print(
        f"all subsets of {size}, {len(few.gold_Q)} questions, all strategies: {time.process_time() - started:.1f} s of processor"
    )
    for strategy in Strategy:
        started = time.process_time()
        found = statistics.fmean(_expected(few, question, strategy, size) for question in range(len(few.gold_Q)))
        seconds = time.process_time() - started
        print(
            f"{strategy}, one by one: {seconds:.1f} s of processor, "
            f"accuracy {found:.6f}; vectorised {ours[strategy].mean():.6f}"
        )


def _expected(batch: Candidates, question: int, strategy: Strategy, size: int) -> float:
    answers = [None if code < 0 else str(code) for code in batch.answers_QM[question].tolist()]
    p = [None if np.isnan(chance) else chance for chance in batch.p_QM[question].tolist()]
    verdicts = [None if verdict < 0 else verdict for verdict in batch.verdicts_QM[question].tolist()]
    gold = str(batch.gold_Q[question])
    subsets = itertools.combinations(zip(answers, p, verdicts, strict=True), size)
    return statistics.fmean(select(strategy, *zip(*subset, strict=True)).chances.get(gold, 0.0) for subset in subsets)


def _peak() -> float:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
