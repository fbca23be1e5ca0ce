"""Splitting questions into folds, so that what was fitted on some is measured on others."""

from collections.abc import Sequence

import numpy as np

from eval.metrics import Labels

FOLDS = 5


def question_folds(questions: Sequence[str], seed: int = 0) -> Labels:
    """The fold [N] of each trace, 0 … 4. All traces of a question share one; folds hold about as many questions.

    It follows from the seed and the set of questions, not from the order of rows.
    """
    names, group = np.unique(np.asarray(questions), return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(names)) % FOLDS).astype(np.int64)[group]
