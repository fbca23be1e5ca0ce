"""What a service says of itself, asked for before anything else is."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import httpx2

from retrieval.passage import RetrievalError, UnavailableError
from retrieval.tries import NoMoreTriesError, Patience, Vain, described, first_answer

_MOST_BYTES = 2**20


class NotToldError(Exception):
    """A service does not say what it was asked about itself."""


def told(url: str, field: str, *, timeout_s: float, retries: int, headers: Mapping[str, str] | None = None) -> str:
    """Ask a service's `/info` for a text, again and again where any request would be tried again. Blocks up to `timeout_s`.

    Raises:
        NotToldError: it does not answer in time, or not with that.
    """
    # In a thread of its own, because the caller's may run an event loop. Only a loop can end a wait at any moment: a server
    # that sends a byte now and then would keep a blocking read waiting for ever.
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(asyncio.run, _told(url, field, timeout_s, retries, headers)).result()
    finally:
        pool.shutdown(wait=False)


async def _told(url: str, field: str, timeout_s: float, retries: int, headers: Mapping[str, str] | None) -> str:
    address, ends = url.rstrip("/") + "/info", monotonic() + timeout_s
    vain = list[Vain]()
    cause: Exception
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx2.AsyncClient(timeout=None, headers=dict(headers or {})) as client,
        ):
            reply = await first_answer(
                client, "GET", address, most=_MOST_BYTES, ends=ends, patience=Patience(retries), vain=vain
            )
        if reply.status != 200:
            raise UnavailableError(reply.described())
        value = reply.json()[field]
        if not isinstance(value, str):
            raise TypeError(f"{field} is {value!r:.80}")
        return value
    except (TimeoutError, NoMoreTriesError) as error:
        why, cause = described(vain[-1]) if vain else f"no answer within {timeout_s:g} s", error
    except (RetrievalError, ValueError, KeyError, TypeError) as error:
        why, cause = repr(error), error
    raise NotToldError(f"{address} does not tell its {field} ({why:.300})") from cause
