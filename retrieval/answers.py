"""Reading what a server answers, whatever that is: no more than a number of bytes, and every fault of one kind."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

import httpx2

from configs import strict_json
from retrieval.passage import RetrievalError

_PROBLEM = "urn:medverify:problem:"


class Answer(NamedTuple):
    """What a server sent, in full and unpacked."""

    status: int
    headers: httpx2.Headers
    body: bytes

    def json(self) -> Any:
        """The body's value; a ValueError if it has none."""
        return strict_json.parse(self.body)

    def problem(self) -> str:
        """The kind of problem that one of our services tells of; empty for everything else."""
        try:
            kind = self.json()["type"]
        except (ValueError, KeyError, TypeError):
            return ""
        return kind.removeprefix(_PROBLEM) if isinstance(kind, str) and kind.startswith(_PROBLEM) else ""

    def described(self) -> str:
        """Status, and the problem's own words if it is one."""
        try:
            detail = self.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = None
        if not isinstance(detail, str):  # not as the charset says: a server can name one that is none
            detail = self.body[:1200].decode(errors="replace")
        return f"HTTP {self.status}: {detail:.300}"


class UnsendableError(RetrievalError):
    """Nothing was sent: the body is no JSON (a number that is not finite, half a character), or the address is none."""


class Lines(NamedTuple):
    """A body of JSON lines."""

    text: bytes


async def ask(
    client: httpx2.AsyncClient, method: str, url: str, *, most: int, body: Mapping[str, Any] | Lines | None = None
) -> Answer:
    """One request and its answer. The caller keeps the time.

    Args:
        client: with the address that `url` is relative to, if it is.
        most: bytes that the answer may have once it is unpacked; reading stops there, so that a small answer that
            unpacks to gigabytes fills no memory.
        body: to be sent as JSON, or as JSON lines.

    Raises:
        UnsendableError: the body is none.
        RetrievalError: the answer is longer than that, or packed in a way that cannot be undone.
        httpx2.TransportError: the connection was not made, or lost.
    """
    received = bytearray()
    sent: dict[str, Any] = {"json": body}
    if isinstance(body, Lines):
        sent = {"content": body.text, "headers": {"Content-Type": "application/x-ndjson"}}
    try:
        request = client.build_request(method, url, **sent)
    except (TypeError, ValueError, httpx2.InvalidURL) as error:
        raise UnsendableError(f"{client.base_url}{url}: the request cannot be sent: {error!s:.300}") from error
    try:
        async with aclosing(await client.send(request, stream=True)) as reply:
            async for piece in reply.aiter_bytes():
                received += piece
                if len(received) > most:
                    raise RetrievalError(f"{reply.url}: the answer has more than {most} bytes, which nothing asked for")
            return Answer(reply.status_code, reply.headers, bytes(received))
    except httpx2.TransportError:
        raise
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise RetrievalError(f"{client.base_url}{url}: the answer cannot be read: {error!r:.300}") from error
