"""One name for a request, from the caller through the logs and the audit log back to the caller."""

import re
import secrets
from contextvars import ContextVar

HEADER = b"x-request-id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")  # nothing that could break a line of a log
_SECRET = re.compile(rb"(?:mv.)?[A-Za-z0-9-]{43}")  # as a key looks; one with a "_" is no such word anyway
_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def request_id() -> str | None:
    """The id of the request that is being worked on; None outside of one."""
    return _current.get()


def in_the_log() -> str:
    """Where the reason is that callers are not told."""
    name = request_id()
    return "the service's log has the reason" + (f", under request {name}" if name else "")


def begin(sent: bytes | None) -> str:
    """Name the request that is worked on from here: as its caller named it, if that is a plain word, else anew.

    What looks like a key is no name: names are logged.
    """
    name = (
        sent.decode() if sent and _ACCEPTED.fullmatch(sent) and not _SECRET.fullmatch(sent) else secrets.token_hex(16)
    )
    _current.set(name)
    return name


def resume(name: str | None) -> None:
    """Go on, in another process, with the request that was named there."""
    _current.set(name)
