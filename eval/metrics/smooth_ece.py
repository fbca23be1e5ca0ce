"""Calibration error without bins: smooth ECE (Błasiok & Nakkiran, "Smooth ECE", 2023, arXiv 2309.12236).

The excess of outcomes over probabilities is smoothed along the axis of probabilities with a Gaussian kernel that is reflected
at 0 and 1; its mean absolute value is the error at that bandwidth. It falls as the bandwidth grows, and the bandwidth that is
taken is the one that equals the error there. So nothing has to be chosen.
"""

from functools import partial

import numpy as np

from eval.metrics.metric import Distance, Floats, Labels, ties

_CELLS = 512  # probabilities are rounded to so many cells
_HALVINGS = 14  # the fixed point is found to half of 1 / 2^14: intervals compare values that are close together


def _excess_by_cell(labels: Labels, scores: Floats, weights: Floats) -> Floats:
    """Weighted sum [S, C] of outcome - probability in each cell of the axis."""
    cells = np.minimum((scores * _CELLS).astype(np.int64), _CELLS - 1)
    order, starts = ties(cells)
    sums = np.zeros((len(weights), _CELLS))
    sums[:, cells[order][starts]] = np.add.reduceat(weights[:, order] * (labels - scores)[order], starts, axis=1)
    return sums


@partial(Distance, excess=_excess_by_cell)
def smooth_ece(excess_SC: Floats) -> Floats:
    """The smooth ECE, to about 0.001. Scores are probabilities."""
    # Reflection makes the axis a circle of twice its length, on which the kernel multiplies each frequency.
    spectrum = np.fft.rfft(np.concatenate([excess_SC, excess_SC[:, ::-1]], axis=1), axis=1)
    frequencies = np.pi * np.arange(_CELLS + 1)
    low, high = np.zeros(len(excess_SC)), np.ones(len(excess_SC))
    for _ in range(_HALVINGS):
        bandwidth = (low + high) / 2
        kernel = np.exp(-((bandwidth[:, np.newaxis] * frequencies) ** 2) / 2)
        smoothed_SC = np.fft.irfft(spectrum * kernel, n=2 * _CELLS, axis=1)[:, :_CELLS]
        above = np.abs(smoothed_SC).sum(axis=1) > bandwidth
        low, high = np.where(above, bandwidth, low), np.where(above, high, bandwidth)
    return (low + high) / 2
