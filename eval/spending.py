"""Drawing traces one after another until the answer is safe, simulated over traces that are there already.

The traces of a question are drawn in many random orders. At each trace the rule says how safe the lead is; for each threshold,
drawing stops at the first trace that reaches it, or when the question has no more. What comes out is a curve: accuracy against
traces spent, a point for each threshold, and beside it the same for a fixed number of traces in the same orders.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.ballots import Block, Count, blocks
from eval.candidates import Candidates
from eval.metrics import Floats
from verifier.budget import Safety
from verifier.selection import Strategy

ORDERS = 128
#: Where the curve is looked at: closer together the nearer to certain.
THRESHOLDS = tuple(round(1 - (1 - step / 40) ** 3 / 2, 6) for step in range(1, 41))


@dataclass(frozen=True, slots=True)
class Curve:
    """Ways to spend, a point each: means over orders, by question."""

    accuracy_TQ: Floats
    spent_TQ: Floats  # traces drawn

    def points(self) -> tuple[Floats, Floats]:
        """Mean accuracy and mean traces spent over questions, [T] each."""
        return self.accuracy_TQ.mean(axis=1), self.spent_TQ.mean(axis=1)


@dataclass(frozen=True, slots=True)
class Simulation:
    """What adaptive and fixed spending come to in the same orders."""

    thresholds_T: Floats  # rising; the last is infinite: no early stop
    adaptive: Curve  # a point for each threshold
    fixed: Curve  # a point for each number of traces, 1 … M; a question that has fewer gives all


def simulate(
    batch: Candidates, strategy: Strategy, safety: Safety, thresholds: Sequence[float] = THRESHOLDS, *,
    orders: int = ORDERS, seed: int = 0,
) -> Simulation:  # fmt: skip
    """Spend under a rule, at each of its thresholds.

    Args:
        batch: the traces. The whole budget of a question is what it has; one without any is answered wrongly.
        strategy: how traces vote: majority, hard or soft.
        safety: how safe a lead is.
        thresholds: above 0.5 and at most 1.
        orders: random orders of each question; all, where it has no more.
        seed: of the orders.

    Raises:
        ValueError: no orders, a threshold out of range, or best-of-n, which counts no votes.
    """
    if orders < 1 or not all(0.5 < threshold <= 1 for threshold in thresholds):
        raise ValueError(f"at least one order, and thresholds above 0.5 and at most 1, not {orders} and {thresholds}")
    thresholds_T = np.array([*sorted(thresholds), np.inf])
    questions, most = batch.answers_QM.shape
    adaptive = Curve(np.zeros((len(thresholds_T), questions)), np.zeros((len(thresholds_T), questions)))
    fixed = Curve(np.zeros((most, questions)), np.minimum(np.arange(1, most + 1)[:, None], batch.counts).astype(float))
    for block in blocks(batch, [strategy], orders):
        right_BDC, safe_BDC = _followed(block, strategy, safety, orders, seed)
        fixed.accuracy_TQ[:, block.questions_B] = right_BDC.mean(axis=1).T[
            np.minimum(np.arange(most), right_BDC.shape[2] - 1)
        ]
        for point, threshold in enumerate(thresholds_T):
            last_BD = (safe_BDC[:, :, :-1] < threshold).sum(axis=2)
            reached_BD = np.take_along_axis(right_BDC, last_BD[:, :, None], axis=2)[:, :, 0]
            adaptive.accuracy_TQ[point, block.questions_B] = reached_BD.mean(axis=1)
            adaptive.spent_TQ[point, block.questions_B] = last_BD.mean(axis=1) + 1
    return Simulation(thresholds_T, adaptive, fixed)


def _followed(block: Block, strategy: Strategy, safety: Safety, orders: int, seed: int) -> tuple[Floats, Floats]:
    """[B, D, C] after each trace of each order: accuracy if one stops there, and the safest that the lead has been so far."""
    orders_BDC = block.random_orders(orders, seed)
    count = orders_BDC.shape[2]
    votes = Count(block, orders_BDC.shape[1])
    right_BDC, safe_BDC = np.empty(orders_BDC.shape), np.empty(orders_BDC.shape)
    for step in range(count):
        votes.add(orders_BDC[:, :, step : step + 1])
        right_BDC[:, :, step] = votes.accuracies()[strategy].reshape(orders_BDC.shape[:2])
        lead, second = votes.leaders(strategy)
        safe_BDC[:, :, step] = safety(lead, second, step + 1, count).reshape(orders_BDC.shape[:2])
    return right_BDC, np.maximum.accumulate(safe_BDC, axis=2)
