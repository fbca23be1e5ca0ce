"""Baselines that look at the traces and ask no judge, as columns of p, so that they are measured as a judge is.

    scaling(replace(batch, p_QM=longest(lengths_QM)), ...)

A trace picked at random is `eval.closed_forms.mean_accuracy`, and self-consistency the strategy `majority`.
"""

import numpy as np

from eval.candidates import Candidates
from eval.metrics import Floats


def longest(lengths_QM: Floats) -> Floats:
    """[Q, M] Length of a trace as a share of the longest of its question; NaN, as given, where there is none."""
    longest_Q1: Floats = np.nan_to_num(lengths_QM).max(axis=1, initial=1, keepdims=True)
    return lengths_QM / longest_Q1


def shortest(lengths_QM: Floats) -> Floats:
    """[Q, M] The reverse of `longest`."""
    return 1 - longest(lengths_QM)


def answer_frequency(batch: Candidates) -> Floats:
    """[Q, M] Share of a question's traces that give the same answer; NaN where it is unreadable.

    It looks at all traces of the question. As a judge it therefore knows more than one that sees a single trace; as a selection
    among n traces it is no other than the majority.
    """
    questions, answers = len(batch.gold_Q), 1 + int(batch.answers_QM.max(initial=0))
    cells_QM = np.maximum(batch.answers_QM, 0) + answers * np.arange(questions)[:, None]
    given = np.bincount(cells_QM[batch.readable], minlength=questions * answers)
    return np.where(batch.readable, given[cells_QM] / np.maximum(batch.counts, 1)[:, None], np.nan)
