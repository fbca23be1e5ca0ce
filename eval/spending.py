"""Drawing traces one after another until the answer is safe, simulated over traces that are there already.

The traces of a question are drawn in many random orders. At each trace the rule says how safe the lead is within a limit; drawing
stops at the first trace that reaches a threshold, or at the limit. What comes out is a curve: accuracy against traces spent, a
point for each threshold and limit, and beside it the same for a fixed number of traces in the same orders.
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
LIMITS = (2, 3, 4, 6, 8, 12, 16, 24)


@dataclass(frozen=True, slots=True)
class Curve:
    """Ways to spend, a point each: means over orders, by question."""

    accuracy_TQ: Floats
    spent_TQ: Floats  # traces drawn

    def points(self) -> tuple[Floats, Floats]:
        """Mean accuracy and mean traces spent over questions, [T] each."""
        return self.accuracy_TQ.mean(axis=1), self.spent_TQ.mean(axis=1)


@dataclass(frozen=True, slots=True)
class Stop:
    """When to stop: at a threshold of the rule, and at a number of traces in any case."""

    threshold: float  # infinite: never before the limit
    limit: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """What adaptive and fixed spending come to in the same orders."""

    stops: list[Stop]  # the last spends everything
    adaptive: Curve  # a point for each of them
    fixed: Curve  # a point for each number of traces, 1 … M; a question that has fewer gives all


def simulate(
    batch: Candidates, strategy: Strategy, safety: Safety,
    thresholds: Sequence[float] = THRESHOLDS, limits: Sequence[int] = LIMITS, *,
    orders: int = ORDERS, seed: int = 0,
) -> Simulation:  # fmt: skip
    """Spend under a rule, at each threshold within each limit.

    Args:
        batch: the traces. A question without any is answered wrongly.
        strategy: how traces vote: majority, hard or soft.
        safety: how safe a lead is.
        thresholds: above 0.5 and at most 1.
        limits: traces to draw at most. All that a question has is a limit as well; larger ones are left out.
        orders: random orders of each question; all, where it has no more.
        seed: of the orders.

    Raises:
        ValueError: no orders, a threshold or limit out of range, or best-of-n, which counts no votes.
    """
    if orders < 1 or min(limits, default=1) < 1 or not all(0.5 < threshold <= 1 for threshold in thresholds):
        raise ValueError("orders and limits are 1 or more, thresholds above 0.5 and at most 1")
    questions, most = batch.answers_QM.shape
    within = [*sorted({limit for limit in limits if limit < most}), most]
    stops = [Stop(threshold, limit) for limit in within for threshold in (*sorted(thresholds), np.inf)]
    adaptive = Curve(np.zeros((len(stops), questions)), np.zeros((len(stops), questions)))
    fixed = Curve(np.zeros((most, questions)), np.minimum(np.arange(1, most + 1)[:, None], batch.counts).astype(float))
    for block in blocks(batch, [strategy], orders):
        followed = _Followed(block, strategy, orders, seed)
        for row in range(most):
            fixed.accuracy_TQ[row, block.questions_B] = followed.right_CBD[min(row, len(followed.right_CBD) - 1)].mean(
                axis=1
            )
        for limit in within:
            safe_LBD = followed.safest(safety, limit)
            for row, stop in enumerate(stops):
                if stop.limit == limit:
                    accuracy_B, spent_B = followed.stopped(safe_LBD, stop.threshold)
                    adaptive.accuracy_TQ[row, block.questions_B] = accuracy_B
                    adaptive.spent_TQ[row, block.questions_B] = spent_B
    return Simulation(stops, adaptive, fixed)


class _Followed:
    """The questions of a block after each trace of each order; axes: C traces drawn, B questions, D orders."""

    def __init__(self, block: Block, strategy: Strategy, orders: int, seed: int) -> None:
        orders_BDC = block.random_orders(orders, seed)
        votes = Count(block, orders_BDC.shape[1])
        shape = orders_BDC.shape[2], *orders_BDC.shape[:2]
        self.right_CBD, self._lead_CBD, self._second_CBD = np.empty(shape), np.empty(shape), np.empty(shape)
        for step in range(len(self.right_CBD)):
            votes.add(orders_BDC[:, :, step : step + 1])
            lead_R, second_R = votes.leaders(strategy)
            self.right_CBD[step] = votes.accuracies()[strategy].reshape(shape[1:])
            self._lead_CBD[step], self._second_CBD[step] = lead_R.reshape(shape[1:]), second_R.reshape(shape[1:])

    def safest(self, safety: Safety, limit: int) -> Floats:
        """[L, B, D] The safest that the lead has been so far, within a limit of L = C traces or fewer."""
        limit = min(limit, len(self.right_CBD))
        pairs = zip(self._lead_CBD[:limit], self._second_CBD[:limit], strict=True)
        safe_LBD = [safety(lead_BD, second_BD, step, limit) for step, (lead_BD, second_BD) in enumerate(pairs, start=1)]
        return np.maximum.accumulate(safe_LBD, axis=0)

    def stopped(self, safe_LBD: Floats, threshold: float) -> tuple[Floats, Floats]:
        """[B] Accuracy and traces spent, stopping where the lead first is as safe as that, or at the last."""
        last_BD = (safe_LBD[:-1] < threshold).sum(axis=0)
        reached_BD = np.take_along_axis(self.right_CBD, last_BD[None], axis=0)[0]
        return reached_BD.mean(axis=1), last_BD.mean(axis=1) + 1
