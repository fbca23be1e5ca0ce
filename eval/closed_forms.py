"""Expected accuracy with n of a question's traces, where a formula gives it: any trace right, best-of-n, and the mean.

n traces are drawn without replacement from those that the question has; a question with fewer gives all of them.
"""

from math import comb

import numpy as np

from eval.candidates import Candidates, Flags
from eval.metrics import Floats, Labels


def mean_accuracy(right_QM: Flags, counts_Q: Labels) -> Floats:
    """[Q] Accuracy of a trace picked at random, whatever n is; 0 without any.

    Args:
        right_QM: whether there is a right trace: `Candidates.right`, by the answers, or what the labels of a pack say.
        counts_Q: traces of each question, readable or not.
    """
    share_Q: Floats = right_QM.sum(axis=1) / np.maximum(counts_Q, 1)
    return share_Q


def any_right_at(right_QM: Flags, counts_Q: Labels, n: int) -> Floats:
    """[Q] Chance that n traces hold a right one: what a perfect choice would reach (pass@n, unbiased). As `mean_accuracy`."""
    missed_QM = _missed(counts_Q, n, right_QM.shape[1])
    missed_Q: Floats = missed_QM[np.arange(len(missed_QM)), right_QM.sum(axis=1)]
    return 1 - missed_Q


def best_of_n_at(batch: Candidates, n: int) -> Floats:
    """[Q] Accuracy of the readable trace with the highest p among n, ties being shared.

    Unjudged ones are tied for the last place. Traces tied for a place are chosen if one of them is drawn and none of those above:
    a difference of two hypergeometric chances, the same for each of them.
    """
    rank_QM = np.where(np.isnan(batch.p_QM), -1.0, batch.p_QM)
    rank_QM = np.where(batch.readable, rank_QM, -2.0)
    order_QM = np.argsort(-rank_QM, axis=1)
    rank_QM = np.take_along_axis(rank_QM, order_QM, axis=1)
    right_QM = np.take_along_axis(batch.right, order_QM, axis=1)
    above_QM, upto_QM = _tied(rank_QM)
    missed_QM = _missed(batch.counts, n, rank_QM.shape[1])
    chosen_QM = np.take_along_axis(missed_QM, above_QM, axis=1) - np.take_along_axis(missed_QM, upto_QM, axis=1)
    accuracy_Q: Floats = (right_QM * chosen_QM / (upto_QM - above_QM)).sum(axis=1)
    return accuracy_Q


def _tied(rank_QM: Floats) -> tuple[Labels, Labels]:
    """For each place in a falling row: how many places are above those it is tied with, and how many with them included."""
    places = np.arange(rank_QM.shape[1])
    first_QM = np.ones(rank_QM.shape, dtype=np.bool_)
    first_QM[:, 1:] = rank_QM[:, 1:] != rank_QM[:, :-1]
    last_QM = np.ones(rank_QM.shape, dtype=np.bool_)
    last_QM[:, :-1] = first_QM[:, 1:]
    above_QM = np.maximum.accumulate(np.where(first_QM, places, 0), axis=1)
    upto_QM = np.minimum.accumulate(np.where(last_QM, places + 1, len(places))[:, ::-1], axis=1)[:, ::-1]
    return above_QM, upto_QM


def _missed(counts_Q: Labels, n: int, most: int) -> Floats:
    """[Q, most + 1] Chance that n of a question's traces hold none of certain 0, 1, … most of them.

    Raises:
        ValueError: n below 1.
    """
    if n < 1:
        raise ValueError(f"at least one trace has to be drawn, not {n}")
    kinds, kind_Q = np.unique(counts_Q, return_inverse=True)
    table = np.zeros((len(kinds), most + 1))
    for row, count in enumerate(kinds.tolist()):
        size = min(n, count)
        table[row, : count + 1] = [comb(count - certain, size) / comb(count, size) for certain in range(count + 1)]
    return table[kind_Q]
