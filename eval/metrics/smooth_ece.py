"""Calibration error without bins: smooth ECE (Błasiok & Nakkiran, "Smooth ECE", 2023, arXiv 2309.12236).

The excess of outcomes over probabilities is smoothed along the axis of probabilities with a Gaussian kernel that is reflected
at 0 and 1; its mean absolute value is the error at that bandwidth. It falls as the bandwidth grows, and the bandwidth that is
taken is the one that equals the error there. So nothing has to be chosen.
"""

from functools import partial

import numpy as np

from eval.metrics.metric import Distance, Floats, Labels, ties

_CELLS = 512  # probabilities are rounded to so many cells
_STEPS = 7  # towards the fixed point, which is then found to 1e-5, at worst to 1e-3


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

    def excess_error(bandwidth: Floats) -> Floats:
        """By how much the error at a bandwidth is larger than it; falls with the bandwidth."""
        kernel = np.exp(-((bandwidth[:, np.newaxis] * frequencies) ** 2) / 2)
        smoothed_SC = np.fft.irfft(spectrum * kernel, n=2 * _CELLS, axis=1)[:, :_CELLS]
        error: Floats = np.abs(smoothed_SC).sum(axis=1) - bandwidth
        return error

    # Regula falsi with Illinois' rule: of two ends, one that stays twice counts half. Smoothing only makes the error smaller.
    low, high = np.zeros(len(excess_SC)), np.abs(excess_SC).sum(axis=1)
    at_low, at_high = high, excess_error(high)
    moved = np.zeros(len(excess_SC))
    between = low
    for _ in range(_STEPS):
        rise = at_high - at_low
        between = np.where(rise != 0, (low * at_high - high * at_low) / np.where(rise != 0, rise, 1), low)
        found = excess_error(between)
        above = found > 0
        at_high = np.where(above & (moved > 0), at_high / 2, at_high)
        at_low = np.where(~above & (moved < 0), at_low / 2, at_low)
        low, at_low = np.where(above, between, low), np.where(above, found, at_low)
        high, at_high = np.where(above, high, between), np.where(above, at_high, found)
        moved = np.where(above, 1, -1)
    return between
