"""Where a generation ends that a server did not end: after the first token that completes a stop string."""

import bisect
from collections.abc import Sequence

from verifier.engines.base import Tokenizer


def first_end(tokenizer: Tokenizer, ids: Sequence[int], stops: Sequence[str]) -> int | None:
    """How many ids there are up to the token that completes one of the stop strings; None if none is there."""

    def stopped(count: int) -> bool:
        text = tokenizer.decode(ids[:count])
        return any(stop in text for stop in stops)

    if not stops or not stopped(len(ids)):
        return None
    return bisect.bisect_left(range(1, len(ids) + 1), True, key=stopped) + 1
