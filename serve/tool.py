"""The tool server: actions of a policy in, what it observes next out."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

from retrieval.local import check_query
from retrieval.passage import Hit, QueryError
from serve.retrieval_schemas import Observations, Observe, Refusal
from verifier.parse import Block, Tag, parse
from verifier.prompt import render_information
from verifier.types import EvidencePassage

Search = Callable[[Sequence[str]], Awaitable[list[list[Hit]]]]

_MANY_CHARS = 500_000  # reading more of them would keep other requests waiting; a thread is dearer for fewer
NOTHING_FOUND = "no passage has any of these words; search with other words"


async def observe(request: Observe, search: Search) -> Observations:
    """Run the search that each action ends in.

    What cannot be searched for, or is not found, is a refusal; an outage is an error for all.

    Raises:
        RetrievalError: whatever the search raises. An outage is never an observation without evidence.
    """
    started = perf_counter()
    count = len(request.actions)
    observations: list[str | Refusal] = [""] * count
    dones, valids = [False] * count, [True] * count
    queries: dict[int, str] = {}
    flags = request.finished()
    unfinished = [action for action, finished in zip(request.actions, flags, strict=True) if not finished]
    if sum(map(len, unfinished)) > _MANY_CHARS:
        acts = iter(await asyncio.to_thread(lambda: list(map(last_act, unfinished))))
    else:
        acts = map(last_act, unfinished)
    for place, finished in enumerate(flags):
        block = None if finished else next(acts)
        if finished or (block is not None and block.tag is Tag.ANSWER):
            dones[place] = True
            continue
        try:
            queries[place] = _query(block)
        except QueryError as error:
            observations[place], valids[place] = Refusal(invalid_reason=str(error)), False
    for place, hits in zip(queries, await search(list(queries.values())), strict=True):
        if hits:
            observations[place] = render_information(list(map(EvidencePassage.of, hits)))
        else:  # an empty block would pass for evidence that there is none
            observations[place], valids[place] = Refusal(invalid_reason=NOTHING_FOUND), False
    elapsed = (perf_counter() - started) * 1000
    return Observations(observations=observations, dones=dones, valids=valids, processing_time_ms=elapsed)


def last_act(action: str) -> Block | None:
    """The last complete search or answer of what a policy wrote; one that is only talked about does not count."""
    acts = [block for block in parse(action).blocks if block.tag in (Tag.SEARCH, Tag.ANSWER)]
    return acts[-1] if acts else None


def _query(block: Block | None) -> str:
    if block is None:
        raise QueryError(f"the action has no complete {Tag.SEARCH.opening}…{Tag.SEARCH.closing}")
    query = block.content.strip()
    check_query(query)
    return query
