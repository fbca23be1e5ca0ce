"""What stopping early saves on packs, without a judge: votes of the majority, each rule, at equal accuracy.

    python -m benchmarks.spending PREFIX... [--orders 128] [--draws 1000]

For each pack: accuracy and traces spent with a fixed number of traces and under each rule, then the savings with their intervals.
"""

import argparse
from pathlib import Path

import numpy as np

from eval.candidates import Candidates, gather
from eval.metrics import Estimate
from eval.saving import cross_fit, policy_saving, saving
from eval.spending import ORDERS, Curve, simulate
from verifier.budget import decided, predicted
from verifier.packs import read_pack
from verifier.selection import Strategy

_LOSSES = (0.0, 0.005, 0.01)


def main() -> None:
    """Simulate and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packs", type=Path, nargs="+", metavar="PREFIX")
    parser.add_argument("--orders", type=int, default=ORDERS, help="random orders of traces; as many as a report has")
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    for prefix in options.packs:
        report(prefix.name, majority_votes(prefix), options.orders, options.draws)


def majority_votes(prefix: Path) -> Candidates:
    """A pack whose traces nobody judged."""
    rows = read_pack(prefix)
    return gather(
        [row.question_id for row in rows],
        [row.answer for row in rows],
        [row.gold for row in rows],
        np.full(len(rows), np.nan),
        np.full(len(rows), -1),
    ).candidates


def report(name: str, batch: Candidates, orders: int, draws: int) -> None:
    """Print one pack."""
    print(f"## {name}: {len(batch.gold_Q)} questions, {batch.counts.mean():.1f} traces each\n")
    certain = simulate(batch, Strategy.MAJORITY, decided, [1.0], orders=orders)
    likely = simulate(batch, Strategy.MAJORITY, predicted, orders=orders)
    print(f"fixed: {_points(likely.fixed)}\n")
    print(f"decided: {_points(_frontier(certain.adaptive))}\n")
    print(f"predicted: {_points(_frontier(likely.adaptive))}\n")
    print("| loss allowed | saving along the curve | threshold within limit, by fold | accuracy | spent | saving |")
    print("|---|---|---|---|---|---|")
    print(f"| decided | {_estimate(saving(certain.fixed, certain.adaptive, 0, draws=draws))} | | | | |")
    for loss in _LOSSES:
        policy = cross_fit(likely, loss)
        (accuracy,), (spent,) = policy.curve.points()
        cells = [
            f"{loss}",
            _estimate(saving(likely.fixed, likely.adaptive, loss, draws=draws)),
            ", ".join(f"{stop.threshold:.3f} in {stop.limit}" for stop in policy.stops),
            f"{accuracy:.3f}",
            f"{spent:.2f}",
            _estimate(policy_saving(likely.fixed, policy, draws=draws)),
        ]
        print(f"| {' | '.join(cells)} |")
    print()


def _frontier(curve: Curve) -> Curve:
    """The points that no cheaper one reaches, the cheapest first."""
    accuracy, spent = curve.points()
    order = np.lexsort((-accuracy, spent))
    best = np.maximum.accumulate(accuracy[order])
    kept = order[np.diff(best, prepend=-1) > 0]
    return Curve(curve.accuracy_TQ[kept], curve.spent_TQ[kept])


def _points(curve: Curve) -> str:
    return ", ".join(f"{accuracy:.3f} ({spent:.2f})" for accuracy, spent in zip(*curve.points(), strict=True))


def _estimate(value: Estimate) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


if __name__ == "__main__":
    main()
