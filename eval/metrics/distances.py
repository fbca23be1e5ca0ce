"""95 % intervals of distances from 0, such as calibration errors, whose value is too high on average.

What is asked for is the error of the judge, not of the sample: how far the vector of means is from 0 over all such questions.

- **Low.** Think of judges whose vector is the one found, shrunk by a factor. Draws moved to that vector say how large an error
  such a judge shows on so many questions. The lower limit is the error of the least judge of these whose errors reach the value
  in one of 40 samples (a test turned round: Carpenter 1999). It is 0 where a perfect judge might show the value as well.
- **High.** Chance makes the value too high, so that the truth is hardly ever above the value by more than the value's own
  spread, which is its change along small steps towards draws (a numerical delta method: Hong & Li 2018). The steps are taken from
  vectors that are drawn too, for it is not known from which one the sample came. Nothing is taken off for chance: where errors of
  many bins are lost in noise, no sample can tell how much of the value is chance.

`benchmarks/intervals.py` says how often they hold the truth.
"""

from collections.abc import Sequence

import numpy as np

from eval.metrics.draws import Estimate, limits, question_draws
from eval.metrics.metric import Distance, Floats, Labels

_HALVINGS = 4  # then a straight line is drawn: the lower limit is found to a hundredth of the value
_STEP = 0.1  # towards a draw


def distance_interval(
    metric: Distance, labels: Labels, scores: Floats, clusters: Sequence[str], *, samples: int, seed: int
) -> Estimate:
    """A distance with its interval, which holds the value and begins at 0 at the earliest.

    Args:
        metric: the distance.
        labels: int64 [N], 1 or 0.
        scores: float64 [N].
        clusters: question of each trace.
        samples: bootstrap draws.
        seed: of the draws.
    """
    names, group = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) < 2:  # nothing to draw among
        return Estimate(metric(labels, scores), float("nan"), float("nan"))
    found_1C = metric.means(labels, scores, np.ones((1, len(labels))))
    value = float(metric.size(found_1C)[0])
    draws_SC = np.concatenate(
        [metric.means(labels, scores, weights) for weights in question_draws(group, samples, seed)]
    )
    chance_SC = draws_SC - found_1C

    def reached(share: float) -> float:
        """The error that a judge with this share of the vector shows in one of 40 samples."""
        return limits(metric.size(chance_SC + share * found_1C), len(names))[1]

    other_SC = np.roll(chance_SC, 1, axis=0)  # as good as drawn anew
    steps = (metric.size(draws_SC + _STEP * other_SC) - metric.size(draws_SC)) / _STEP
    high = max(value - limits(steps, len(names))[0], value)
    if (at_least := reached(0.0)) >= value:
        return Estimate(value, 0.0, high)
    if (at_most := reached(1.0)) <= value:
        return Estimate(value, value, high)
    least, most = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        if (at_middle := reached(middle)) >= value:
            most, at_most = middle, at_middle
        else:
            least, at_least = middle, at_middle
    share = least + (most - least) * (value - at_least) / (at_most - at_least)
    return Estimate(value, float(metric.size(share * found_1C)[0]), high)
