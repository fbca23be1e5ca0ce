"""The one loop in which our clients of HTTP services send a request again."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import httpx2

from retrieval.answers import Answer, Lines, ask
from retrieval.clients import PASSING, retry_after_s, wait_s

#: A try in vain: an answer that may be another one soon, or a connection that was not made or was lost.
Vain = Answer | httpx2.TransportError

_NEVER_BEGAN = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class NoMoreTriesError(Exception):
    """Every try that was allowed was in vain."""


@dataclass(frozen=True, slots=True)
class Patience:
    """What is tried again, and how often."""

    retries: int  # tries after the first, spent on lost connections and on the statuses `away`
    away: frozenset[int] = PASSING
    busy: frozenset[int] = frozenset()  # it says that it will have time: waited for until the deadline, at no cost,
    costly: frozenset[str] = frozenset()  # except for problems of these kinds, which cost a try
    repeatable: bool = True  # False: two requests are not as good as one; sent again only where none was begun


async def first_answer(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    most: int,
    ends: float,
    patience: Patience,
    vain: list[Vain],
    body: Callable[[float], Mapping[str, Any] | Lines] | None = None,
) -> Answer:
    """The first answer that another try would not change, with longer and longer random waits between the tries.

    A wait is never shorter than `Retry-After`. The caller ends what takes longer than `ends`.

    Args:
        client: with the address that `url` is relative to, if it is.
        method: of HTTP.
        url: address, or path.
        most: bytes that an answer may have.
        ends: when it is too late for another try, by `time.monotonic`.
        patience: what is tried again.
        vain: tries in vain; appended to, so that the caller can tell of them.
        body: makes the body of a try from the seconds that are left then.

    Raises:
        TimeoutError: the next try would be too late.
        NoMoreTriesError: there are no more tries.
        RetrievalError: what came is no answer, and would be none the next time.
    """
    tries_left = patience.retries
    while True:
        asked_s = 0.0
        try:
            sent = None if body is None else body(max(ends - monotonic(), 0.001))
            reply = await ask(client, method, url, most=most, body=sent)
        except httpx2.TransportError as error:
            vain.append(error)
            hopeless = isinstance(error, httpx2.UnsupportedProtocol)
            if hopeless or not (patience.repeatable or isinstance(error, _NEVER_BEGAN)):
                raise NoMoreTriesError from error
            tries_left -= 1
        else:
            away = patience.repeatable and reply.status in patience.away
            waits = reply.status in patience.busy
            busy = waits and reply.problem() not in patience.costly
            if not away and not waits:
                return reply
            vain.append(reply)
            asked_s = retry_after_s(reply.headers)
            tries_left -= not busy
        if tries_left < 0:
            raise NoMoreTriesError
        pause_s = wait_s(len(vain), asked_s)
        if monotonic() + pause_s >= ends:
            raise TimeoutError
        await asyncio.sleep(pause_s)


def described(vain: Vain) -> str:
    """What came of a try in vain."""
    return vain.described() if isinstance(vain, Answer) else f"{type(vain).__name__}: {vain}"
