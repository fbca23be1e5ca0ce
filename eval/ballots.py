"""Questions with the same number of traces, as blocks of ballots in which many orders and subsets are counted at once.

Axes: B questions of a block, C traces of each, R = B x (orders or subsets) rows that are counted, K answers, and a cell for none.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from math import factorial

import numpy as np

from eval.candidates import Candidates
from eval.metrics import Floats, Labels
from verifier.selection import UNITS, Strategy

_CELLS = 2**20  # in an array of a block: memory stays flat however many questions there are


@dataclass(frozen=True, slots=True)
class Block:
    """Questions with C traces each. The order of traces is that of their content, so that results do not depend on the file's."""

    questions_B: Labels  # which of the candidates
    answers_BC: Labels  # codes; K where unreadable
    units_BC: Mapping[Strategy, Floats]  # vote of each trace in whole units of 2**-40
    gold_B: Labels
    answers: int  # K

    def random_orders(self, orders: int, seed: int) -> Labels:
        """[B, orders or C!, C] Traces in random orders, each question in its own; all orders, if there are not more."""
        count = self.answers_BC.shape[1]
        if count < 20 and factorial(count) <= orders:
            every = np.array(list(permutations(range(count))), dtype=np.int64)
            return np.broadcast_to(every, (len(self.gold_B), *every.shape))
        random = np.random.default_rng((seed, int(self.questions_B[0])))
        plain = np.broadcast_to(np.arange(count), (len(self.gold_B), orders, count))
        return random.permuted(plain, axis=2)


class Count:
    """Votes for each answer in R rows, to which traces are added, one or several a row."""

    def __init__(self, block: Block, rows_each: int) -> None:
        """Start with no votes, for so many rows of each question."""
        self._block = block
        self._offsets_B11 = (np.arange(len(block.gold_B)) * block.answers_BC.shape[1])[:, None, None]
        self._rows_R = np.arange(len(block.gold_B) * rows_each)
        self._gold_R = np.repeat(block.gold_B, rows_each)
        # Answers are the first axis, for there are few of them: what is asked of all is then asked row by row at full speed.
        shape = block.answers + 1, len(self._rows_R)
        self._votes = {strategy: np.zeros(shape) for strategy in block.units_BC}

    def add(self, picks_BDn: Labels) -> None:
        """Count n more traces in each of the D rows of each question."""
        places = (picks_BDn + self._offsets_B11).reshape(len(self._rows_R), -1)
        cells = self._block.answers_BC.ravel().take(places) * len(self._rows_R) + self._rows_R[:, None]
        for strategy, votes_KR in self._votes.items():
            units = self._block.units_BC[strategy].ravel().take(places)
            added = np.bincount(cells.ravel(), units.ravel(), minlength=votes_KR.size)
            np.add(votes_KR, added.reshape(votes_KR.shape), out=votes_KR)

    def leaders(self, strategy: Strategy) -> tuple[Floats, Floats]:
        """[R] Votes, in votes, for the first and the second answer; 0 where there is none."""
        votes_KR = self._votes[strategy][:-1] / UNITS
        second_R = np.zeros(len(self._rows_R))
        lead_R = second_R
        for votes_R in votes_KR:
            second_R = np.maximum(second_R, np.minimum(lead_R, votes_R))
            lead_R = np.maximum(lead_R, votes_R)
        return lead_R, second_R

    def accuracies(self) -> dict[Strategy, Floats]:
        """[R] Chance that each strategy chooses the right answer, ties being shared; the majority where no vote has weight."""
        fallback = self._share(Strategy.MAJORITY, np.zeros(len(self._rows_R)))
        shares = {Strategy.MAJORITY: fallback}
        for strategy in self._votes.keys() - shares.keys():
            shares[strategy] = self._share(strategy, fallback)
        return shares

    def _share(self, strategy: Strategy, fallback_R: Floats) -> Floats:
        votes_KR = self._votes[strategy][:-1]
        top_R = votes_KR.max(axis=0)
        tied_KR = votes_KR == top_R
        share_R = tied_KR[self._gold_R, self._rows_R] / tied_KR.sum(axis=0)
        return np.where(top_R > 0, share_R, fallback_R)


def blocks(batch: Candidates, strategies: Collection[Strategy], rows_each: int) -> Iterator[Block]:
    """All questions that have traces, in blocks of like number, small enough to count so many rows of each.

    The majority is always among the votes: the others fall back on it.

    Raises:
        ValueError: best-of-n, which counts no votes.
    """
    if Strategy.BEST in strategies:
        raise ValueError("best-of-n counts no votes")
    answers = 1 + int(max(batch.answers_QM.max(initial=0), batch.gold_Q.max(initial=0)))
    counts_Q = batch.counts
    for count in np.unique(counts_Q[counts_Q > 0]).tolist():
        questions = np.flatnonzero(counts_Q == count)
        size = max(1, _CELLS // (rows_each * max(count, answers + 1)))
        for start in range(0, len(questions), size):
            yield _block(batch, {Strategy.MAJORITY, *strategies}, questions[start : start + size], count, answers)


def _block(batch: Candidates, strategies: Collection[Strategy], questions_B: Labels, count: int, answers: int) -> Block:
    parts = batch.verdicts_QM, batch.p_QM, batch.answers_QM, ~batch.present_QM
    order = np.lexsort(tuple(part[questions_B] for part in parts), axis=1)[
        :, :count
    ]  # those that are not there come last
    verdicts, p, codes = (np.take_along_axis(part[questions_B], order, axis=1) for part in parts[:3])
    units = {
        Strategy.MAJORITY: np.full(codes.shape, float(UNITS)),
        Strategy.HARD: np.where(verdicts == 1, float(UNITS), 0.0),
        Strategy.SOFT: np.where(np.isnan(p), 0.0, np.rint(p * UNITS)),
    }
    return Block(
        questions_B,
        np.where(codes < 0, answers, codes),
        {strategy: units[strategy] for strategy in units if strategy in strategies},
        batch.gold_Q[questions_B],
        answers,
    )
