"""Expected accuracy of each strategy with n = 1 … M of a question's traces: the scaling curve of test-time search.

n traces are drawn without replacement; a question that has fewer gives all of them. Best-of-n has a closed form. Votes are
counted over all subsets where there are few, over random ones otherwise, the same for every strategy and every n, so that
differences between strategies have less noise than either. All of them together stand for one draw of n traces from a generator.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise
from math import comb

import numpy as np

from eval.ballots import Block, Count, blocks
from eval.candidates import Candidates
from eval.closed_forms import best_of_n_at
from eval.metrics import Floats, Labels
from verifier.selection import Strategy

DRAWS = 128


def accuracy_at(strategy: Strategy, batch: Candidates, n: int, *, draws: int = DRAWS, seed: int = 0) -> Floats:
    """[Q] Expected accuracy of one strategy with n traces; see `scaling`."""
    curve_1Q = scaling(batch, [n], [strategy], draws=draws, seed=seed)[strategy]
    return curve_1Q.reshape(-1)


def scaling(
    batch: Candidates, sizes: Sequence[int], strategies: Collection[Strategy] = tuple(Strategy), *,
    draws: int = DRAWS, seed: int = 0,
) -> dict[Strategy, Floats]:  # fmt: skip
    """Expected accuracy of each strategy at each n, [len(sizes), Q]; its mean over questions is the curve.

    Args:
        batch: the traces. A question without any is answered wrongly.
        sizes: the n, in any order.
        strategies: which.
        draws: random subsets of a question at each n. Where it has no more subsets than this (or than traces), all are counted
            once: n = 1, n = M - 1 and n = M are always exact.
        seed: of the draws. What comes out for an n does not depend on the other n, nor on the order of a question's traces.

    Raises:
        ValueError: an n or a number of draws below 1.
    """
    if min(sizes, default=1) < 1 or draws < 1:
        raise ValueError(f"at least one trace and one draw are needed, not n of {list(sizes)} and {draws} draws")
    curves = {strategy: np.zeros((len(sizes), len(batch.gold_Q))) for strategy in strategies}
    if Strategy.BEST in curves:
        curves[Strategy.BEST] = np.array([best_of_n_at(batch, n) for n in sizes]).reshape(curves[Strategy.BEST].shape)
    voting = [strategy for strategy in curves if strategy is not Strategy.BEST]
    most = max(draws, batch.answers_QM.shape[1])
    for block in blocks(batch, voting, most) if voting else ():
        count = block.answers_BC.shape[1]
        for size, accuracies in _counted(block, {min(n, count) for n in sizes}, draws, seed):
            for strategy in voting:
                means_B = accuracies[strategy].reshape(len(block.gold_B), -1).mean(axis=1)
                for row, n in enumerate(sizes):
                    if min(n, count) == size:
                        curves[strategy][row, block.questions_B] = means_B
    return curves


def _counted(
    block: Block, sizes: Collection[int], draws: int, seed: int
) -> Iterator[tuple[int, dict[Strategy, Floats]]]:
    """Accuracies of all rows at each size: those of all subsets, or of the first traces in random orders."""
    count = block.answers_BC.shape[1]
    few = {size for size in sizes if comb(count, size) <= max(draws, count)}
    for size in few:
        yield size, _accuracies(block, _subsets(count, size, len(block.gold_B)))
    many = sorted(set(sizes) - few)
    if many:
        orders_BDC = block.random_orders(draws, seed)
        votes = Count(block, orders_BDC.shape[1])
        for done, size in pairwise([0, *many]):
            votes.add(orders_BDC[:, :, done:size])
            yield size, votes.accuracies()


def _subsets(count: int, size: int, questions: int) -> Labels:
    every = np.array(list(combinations(range(count), size)), dtype=np.int64)
    return np.broadcast_to(every, (questions, *every.shape))


def _accuracies(block: Block, picks_BDn: Labels) -> dict[Strategy, Floats]:
    votes = Count(block, picks_BDn.shape[1])
    votes.add(picks_BDn)
    return votes.accuracies()
