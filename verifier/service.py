"""A judging service at a URL, as every client of ours talks to it: one call, one deadline, an answer or a typed error."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from time import monotonic
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from retrieval.answers import Answer, Lines, UnsendableError
from retrieval.clients import LoopClient, retry_after_s
from retrieval.passage import RetrievalError
from retrieval.tries import NoMoreTriesError, Patience, Vain, described, first_answer
from verifier.engines.base import EngineError
from verifier.types import Case, Judgment

_BUSY = frozenset({429, 503})  # it says that it will have time: waited for until the deadline
_NOT_JUDGED = "not-judged"  # a busy status that need not pass: tried again, but not for ever
_AWAY = frozenset({502, 504})  # a proxy cannot reach it: tried again, but not for ever
_DENIALS = frozenset({401, 403})
_REFUSALS = frozenset({400, 413, 422})
_LEAST_BACK_S, _MOST_BACK_S, _BACK = 0.5, 5.0, 0.05  # for an answer's way back: a share of the time that is left

Model = TypeVar("Model", bound=BaseModel)


class RemoteJudgeError(EngineError):
    """A judge at a URL gave no judgment. `status` is what it answered with, if it answered."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(RemoteJudgeError):
    """It cannot be reached, or does not say who it is."""


class UnauthorisedError(RemoteJudgeError):
    """It wants a key, another key, or one with another scope."""


class RefusedError(RemoteJudgeError):
    """It will not judge this: it does not fit the schema, or is too large."""


class OutOfTimeError(RemoteJudgeError):
    """The deadline passed, whether it was busy, away or at work."""


class BusyError(OutOfTimeError):
    """The deadline passed, and at the last try it was too busy. `retry_after_s` is what it asked for then."""

    def __init__(self, message: str, status: int | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(message, status)
        self.retry_after_s = retry_after_s


class NotJudgedError(RemoteJudgeError):
    """It was at work, and could not judge what was asked, at every try; where an answer has no word for that."""


class WrongAnswerError(RemoteJudgeError):
    """What it answered is not what was asked for, not of what was sent, or not by the judge that was met first."""


def bearer(api_key: str | None) -> dict[str, str]:
    """The header that shows a key, if there is one."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


class JudgingServiceAtUrl:
    """One service. Use it from one event loop at a time."""

    def __init__(self, url: str, *, api_key: str | None = None, retries: int = 4) -> None:
        """Nothing is sent yet.

        Args:
            url: address of the service, without a path.
            api_key: shown with every request.
            retries: tries after the first on lost connections, 502 and 504. A busy service, 429 or 503, is waited for as long
                as it asks, until the deadline.

        Raises:
            ValueError: the URL is none.
        """
        self.url = url.rstrip("/")
        self._retries = retries
        self._client = LoopClient(self.url, bearer(api_key))

    async def aclose(self) -> None:
        """Close the connections. May be called more than once."""
        await self._client.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        deadline_s: float,
        most: int,
        body: Mapping[str, Any] | Lines | None = None,
        tell_deadline: bool = False,
        repeatable: bool = True,
    ) -> Answer:
        """One call, tries and waits included; an answer with a status of 200 to 299.

        Args:
            method: of HTTP.
            path: from the service's address.
            deadline_s: seconds for all of it.
            most: bytes that the answer may have.
            body: sent as JSON, or as JSON lines.
            tell_deadline: say in the body, as `deadline_s`, how long we wait, so that a service that is late answers with what
                it has.
            repeatable: whether doing it twice is as good as once. If not, it is sent again only if it surely was not begun.

        Raises:
            UnauthorisedError, RefusedError: the service will not, or the body cannot be sent.
            OutOfTimeError: no answer before the deadline; BusyError if it was busy then.
            NotJudgedError: it could not judge all of it, at every try that the deadline left time for.
            UnreachableError: no connection, at every try.
            WrongAnswerError: the answer is too long, or cannot be unpacked.
            RemoteJudgeError: any other answer.
        """

        def at(left_s: float) -> Mapping[str, Any] | Lines:
            if isinstance(body, Lines) or not tell_deadline:
                return body or {}
            return {**(body or {}), "deadline_s": _theirs(left_s)}

        vain = list[Vain]()
        try:
            async with asyncio.timeout(deadline_s):
                reply = await first_answer(
                    self._client.here(),
                    method,
                    path,
                    most=most,
                    ends=monotonic() + deadline_s,
                    patience=Patience(
                        self._retries,
                        away=_AWAY,
                        busy=_BUSY,
                        costly=frozenset({_NOT_JUDGED}),
                        repeatable=repeatable,
                    ),
                    vain=vain,
                    body=None if body is None else at,
                )
        except TimeoutError as error:
            raise self._too_late(deadline_s, vain) from error
        except NoMoreTriesError as error:
            tried = f"; tried {len(vain)} times" if len(vain) > 1 else ""
            kind = NotJudgedError if _problem(vain) == _NOT_JUDGED else UnreachableError
            raise kind(f"{self.url}: {described(vain[-1])}{tried}", _status(vain)) from error
        except UnsendableError as error:
            raise RefusedError(str(error)) from error
        except RetrievalError as error:  # what came is no answer, and would be none the next time
            raise WrongAnswerError(str(error)) from error
        if not 200 <= reply.status < 300:
            raise self._refusal(reply)
        return reply

    async def lines(self, path: str, *, idle_s: float) -> AsyncIterator[bytes]:
        """The lines of an answer as they come; asked for once.

        Raises:
            as `call`; OutOfTimeError if nothing comes for `idle_s` seconds.
        """
        try:
            async with self._client.here().stream("GET", path, timeout=idle_s) as reply:
                if reply.status_code != 200:
                    raise self._refusal(Answer(reply.status_code, reply.headers, await reply.aread()))
                async for line in reply.aiter_lines():
                    if line:
                        yield line.encode()
        except httpx2.TimeoutException as error:
            raise OutOfTimeError(f"{self.url}: nothing came for {idle_s:g} s") from error
        except (httpx2.HTTPError, ValueError) as error:
            raise UnreachableError(f"{self.url}: {type(error).__name__}: {error}") from error

    def read(self, reply: Answer, model: type[Model]) -> Model:
        """An answer as what it should be.

        Raises:
            WrongAnswerError: it is something else.
        """
        try:
            return model.model_validate_json(reply.body)
        except ValidationError as error:
            name = model.__name__.lower()
            raise WrongAnswerError(f"{self.url}: the answer is not a {name}: {error!s:.300}") from error

    def check_answers(self, judgment: Judgment, case: Case, seed: int | None) -> None:
        """Raises a WrongAnswerError if a judgment is not of this case; of any seed, if None was sent."""
        sent = (case.id, case.digest, judgment.seed if seed is None else seed)
        if (judgment.id, judgment.case_digest, judgment.seed) != sent:
            raise WrongAnswerError(f"{self.url}: answered for {judgment.id!r}, seed {judgment.seed}, not as asked")

    def _too_late(self, deadline_s: float, vain: list[Vain]) -> RemoteJudgeError:
        last = f"; the last try: {self.url}: {described(vain[-1])}" if vain else ""
        message = f"{self.url}: no answer within {deadline_s:.3g} s{last}"
        final = vain[-1] if vain else None
        if _problem(vain) == _NOT_JUDGED:  # with the status of a busy service, which it was not
            return NotJudgedError(message, _status(vain))
        if isinstance(final, Answer) and final.status in _BUSY:
            return BusyError(message, final.status, retry_after_s(final.headers))
        return OutOfTimeError(message, _status(vain))

    def _refusal(self, reply: Answer) -> RemoteJudgeError:
        message = f"{self.url}: {reply.described()}"
        if reply.status in _DENIALS:
            return UnauthorisedError(f"{message}; set MEDVERIFY_API_KEY, or pass api_key=…", reply.status)
        if reply.status in _REFUSALS:
            return RefusedError(message, reply.status)
        return RemoteJudgeError(message, reply.status)


def _status(vain: list[Vain]) -> int | None:
    last = vain[-1] if vain else None
    return last.status if isinstance(last, Answer) else None


def _problem(vain: list[Vain]) -> str:
    last = vain[-1] if vain else None
    return last.problem() if isinstance(last, Answer) else ""


def _theirs(left_s: float) -> float:
    """How much of our time a service may use, so that its answer is here in time."""
    return left_s - min(max(_LEAST_BACK_S, left_s * _BACK), _MOST_BACK_S, left_s / 2)
