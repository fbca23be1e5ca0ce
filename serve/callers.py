"""Who asks: the key of a request, and what it is good for."""

import ipaddress
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from serve.errors import ServiceError
from serve.keys import KeysError, KeyStore, Scope

logger = logging.getLogger(__name__)

ANONYMOUS = "anonymous"
_RETRY_AFTER_S = 10

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

    def admit(self, token: str | None, scopes: frozenset[Scope]) -> Caller:
        """The caller that sent this key, which must be good for one of the scopes.

        Raises:
            ServiceError: 401 for a key that is missing, wrong or revoked; 403 for one without the scope; 503 where the keys
                cannot be read.
        """
        if self._keys is None:
            return Caller()
        try:
            self._in_force = self._in_force or self._keys.any()
            if not self._in_force:
                return Caller()
            key = self._keys.check(token) if token else None
        except KeysError as error:
            logger.error("%s", error)
            headers = {"Retry-After": str(_RETRY_AFTER_S)}
            detail = "keys cannot be checked at the moment"
            raise ServiceError(503, "keys-unavailable", "Nobody can be let in", detail, headers) from error
        if key is None:
            detail = "the key is not valid" if token else "send a key as `Authorization: Bearer …` or `X-API-Key: …`"
            challenge = 'Bearer realm="medverify"' + (', error="invalid_token"' if token else "")
            raise ServiceError(401, "unauthorized", "A key is needed", detail, {"WWW-Authenticate": challenge})
        if not key.scopes & scopes:
            needed = " or ".join(sorted(scopes))
            raise ServiceError(403, "forbidden", "The key is not good for this", f"it needs the scope {needed}")
        return Caller(key.name, key.scopes)


def _good_for(*scopes: Scope) -> Callable[..., Coroutine[Any, Any, Caller]]:
    """A dependency: the caller of a request, whose key is good for one of these scopes."""

    async def dependency(
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
        header: Annotated[str | None, Depends(_header)],
    ) -> Caller:
        door: Door = request.app.state.door
        return door.admit(bearer.credentials if bearer else header, frozenset(scopes))

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
