"""Does the judge say the same when it is asked again? Verdicts of k seeds over the same traces, int64 [N, k], -1: not judged.

Traces that fewer than two seeds have judged are left out. Where some seeds are missing, a trace's agreement is that of the pairs
it has. Both functions compute S weightings of the traces at once, float64 [S, N], for `intervals.bootstrap`; without weights
all traces count alike and S is 1.
"""

import numpy as np

from eval.metrics.metric import Floats, Labels, share


def pairwise_agreement(verdicts: Labels, weights: Floats | None = None) -> Floats:
    """Chance [S] that two seeds agree on a trace; NaN where no trace was judged twice."""
    agree_N, counts_NC = _agreement(verdicts)
    return _mean_agreement(_weights(counts_NC, weights), agree_N)


def fleiss_kappa(verdicts: Labels, weights: Floats | None = None) -> Floats:
    """Agreement beyond chance [S] (Fleiss 1971): 1 if all agree, 0 if as by chance, NaN if only one verdict was ever given."""
    agree_N, counts_NC = _agreement(verdicts)
    weights_SN = _weights(counts_NC, weights)
    given_SC = weights_SN @ counts_NC
    chance = (share(given_SC, given_SC.sum(axis=1, keepdims=True)) ** 2).sum(axis=1)
    beyond = np.where(chance > 1 - 1e-12, 0.0, 1 - chance)
    return share(_mean_agreement(weights_SN, agree_N) - chance, beyond)


def _agreement(verdicts: Labels) -> tuple[Floats, Floats]:
    """For each trace, the share of agreeing pairs (0 without a pair), and how often each verdict was given [N, C]."""
    categories = np.unique(verdicts[verdicts >= 0])
    counts_NC = (verdicts[:, :, np.newaxis] == categories).sum(axis=1).astype(np.float64)
    given = counts_NC.sum(axis=1)
    pairs = np.where(given >= 2, given * (given - 1), 1)
    return (counts_NC * (counts_NC - 1)).sum(axis=1) / pairs, counts_NC


def _weights(counts_NC: Floats, weights: Floats | None) -> Floats:
    """Weights [S, N], nothing where there is no pair."""
    given = np.ones((1, len(counts_NC))) if weights is None else weights
    return np.where(counts_NC.sum(axis=1) >= 2, given, 0.0)


def _mean_agreement(weights_SN: Floats, agree_N: Floats) -> Floats:
    return share(weights_SN @ agree_N, weights_SN.sum(axis=1))
