"""What sampling by vLLM means in terms of `base.Generate`, whether it runs in this process or behind a server."""

import math
from collections.abc import Sequence


def turn_seed(seed: int, ids: Sequence[int]) -> int:
    """The seed of one generation.

    vLLM starts its random numbers anew in each generation. With one seed for all turns of an episode, they would draw the same
    numbers position by position, and chance would repeat itself.
    """
    return (seed * 1_000_003 + len(ids)) % 2**63


def as_drawn(logprobs: Sequence[float], temperature: float, top_p: float) -> tuple[float, ...]:
    """Log-probabilities of chosen tokens, which vLLM gives at temperature 1 and over all words, as `base.Completion` wants them.

    At another temperature, or within a nucleus, they depend on the whole vocabulary and are not known: NaN.
    """
    known = temperature == 0 or (temperature == 1 and top_p == 1)
    return tuple(logprobs) if known else (math.nan,) * len(logprobs)
