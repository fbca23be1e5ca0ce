"""Who asks: the key of a request, and what it is good for."""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from serve.errors import ServiceError
from serve.keys import KeysError, KeyStore, Scope

logger = logging.getLogger(__name__)

ANONYMOUS = "anonymous"
_RETRY_AFTER_S = 10
_PATIENCE_S = 2.0  # with the disk that holds the keys

_bearer = HTTPBearer(auto_error=False, description="A key from `medverify keys add`, where the service asks for keys.")
_header = APIKeyHeader(name="X-API-Key", auto_error=False, description="The same key, for clients that send no bearer.")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, as far as the service knows."""

    name: str = ANONYMOUS
    scopes: frozenset[Scope] = frozenset(Scope)

    @property
    def sees_all(self) -> bool:
        """Whether others' judgments are shown to it, too."""
        return Scope.READ in self.scopes


class Door:
    """Lets callers in by their keys. Whether keys are needed may change while it stands open, but only from no to yes."""

    def __init__(self, keys: KeyStore | None, rule: Literal["auto", "required", "off"], *, reachable: bool) -> None:
        """Args:
        keys: the keys that are accepted; None: there are none, and nobody is asked.
        rule: the setting `serve.keys`.
        reachable: others than this machine can connect.
        """
        self._keys = None if rule == "off" else keys
        self._in_force = keys is not None and (rule == "required" or (rule == "auto" and reachable))
        self._thread = ThreadPoolExecutor(1, "keys")  # where the disk is waited for

    async def let_in(self, token: str | None) -> Caller:
        """The caller that sent this key.

        Raises:
            ServiceError: 401 for a key that is missing, wrong or revoked; 503 where the keys cannot be read.
        """
        if self._keys is None or not await self._asks(self._keys):
            return Caller()
        key = self._keys.find(token) if token else None
        if key is None:
            detail = "the key is not valid" if token else "send a key as `Authorization: Bearer …` or `X-API-Key: …`"
            challenge = 'Bearer realm="medverify"' + (', error="invalid_token"' if token else "")
            raise ServiceError(401, "unauthorized", "A key is needed", detail, {"WWW-Authenticate": challenge})
        return Caller(key.name, key.scopes)

    async def check(self) -> None:
        """See that there is somebody to let in.

        Raises:
            ServiceError: 503 where keys are in force and none is valid, or where they cannot be read.
        """
        if self._keys is not None and await self._asks(self._keys) and not self._keys.any_valid:
            detail = "keys are in force, and none is valid"
            raise ServiceError(503, "no-key", "Nobody can be let in", detail, {"Retry-After": str(_RETRY_AFTER_S)})

    async def _asks(self, keys: KeyStore) -> bool:
        """Whether keys are in force. Those that were changed are read again first, beside the event loop; raises ServiceError."""
        try:
            if not keys.is_current():
                async with asyncio.timeout(_PATIENCE_S):
                    await asyncio.get_running_loop().run_in_executor(self._thread, keys.refresh)
        except (KeysError, TimeoutError) as error:
            logger.error("%s", str(error) or f"the keys could not be read within {_PATIENCE_S:g} s")
            headers = {"Retry-After": str(_RETRY_AFTER_S)}
            detail = "keys cannot be checked at the moment"
            raise ServiceError(503, "keys-unavailable", "Nobody can be let in", detail, headers) from error
        self._in_force = self._in_force or keys.in_force
        return self._in_force

    def close(self) -> None:
        """End the thread, once nobody asks any more."""
        self._thread.shutdown(wait=False)


def _good_for(*scopes: Scope) -> Callable[..., Coroutine[Any, Any, Caller]]:
    """A dependency: the caller of a request, who was let in already, and whose key is good for one of these scopes."""

    async def dependency(
        request: Request,
        _bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],  # for the description
        _header: Annotated[str | None, Depends(_header)],
    ) -> Caller:
        caller: Caller = request.state.caller
        if not caller.scopes & frozenset(scopes):
            needed = " or ".join(sorted(scopes))
            raise ServiceError(403, "forbidden", "The key is not good for this", f"it needs the scope {needed}")
        return caller

    return dependency


#: Of every route that makes the judge work.
caller = _good_for(Scope.JUDGE)
#: Of every route that searches for the caller.
searcher = _good_for(Scope.RETRIEVE)
#: Of routes that show what was judged; which judgments, `Caller.sees_all` says.
reader = _good_for(Scope.READ, Scope.JUDGE)
#: Of routes that show how the service does.
observer = _good_for(Scope.READ)


class OpenToAllError(Exception):
    """The service would let everybody in; the message names the command that mends it."""


def check_start(host: str, rule: Literal["auto", "required", "off"], keys: KeyStore | None) -> None:
    """Refuse to listen where others can connect while there is no key.

    Raises:
        OpenToAllError: there is none.
        KeysError: the keys cannot be read.
    """
    if is_loopback(host):
        if rule == "auto" and keys is not None and keys.lost():
            logger.warning(
                "there was a key here, and there is none now: nobody is let in. Make one: medverify keys add NAME. To let "
                "everybody in: --set serve.keys=off"
            )
        return
    if rule == "off":
        logger.warning("listening on %s without keys: whoever can connect is let in", host or "all addresses")
    elif keys is None or all(key.revoked for key in keys.list()):
        raise OpenToAllError(
            f"others can connect to {host or 'all addresses'}, and there is no key that lets them in. Make one: medverify keys "
            "add NAME. If something in front of the service asks who is there: --set serve.keys=off"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may stand for any address
