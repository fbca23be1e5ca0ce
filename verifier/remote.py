"""A judge at a URL: the one client of `POST /verify` for whatever judges many cases.

It keeps the promises of `Judge`: `verify` always returns, and what fails is a status, never a number. An answer that is not
for the case that was sent, or by another judge than the one that was met first, is such a failure too: a run must be able to
name who judged.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

import httpx2
from pydantic import ValidationError

from retrieval.answers import Answer, ask
from retrieval.clients import LoopClient, NotToldError, retry_after_s, told, wait_s
from retrieval.passage import RetrievalError
from verifier.engines.base import EngineError
from verifier.types import Case, Judgment, Status, StopReason

_MOST_BYTES = 64 * 2**20  # of a judgment
_BUSY = frozenset({429, 503})  # it says that it will have time: waited for until the deadline
_AWAY = frozenset({502, 504})  # a proxy cannot reach it: tried again, but not for ever
_REFUSALS = frozenset({400, 413, 422})
_WAVES = 4  # times `concurrency`: one slow case then leaves few places empty


class RemoteJudgeError(EngineError):
    """A judge at a URL gave no judgment."""


class UnreachableError(RemoteJudgeError):
    """It cannot be reached, or does not say who it is."""


class RefusedError(RemoteJudgeError):
    """It will not judge this: it does not fit the schema, or is too large."""


class OutOfTimeError(RemoteJudgeError):
    """The deadline passed, whether it was busy, away or at work."""


class WrongAnswerError(RemoteJudgeError):
    """What it answered is not a judgment, not of what was sent, or not by the judge that was met first."""


class RemoteJudge:
    """Judges cases over HTTP. Use it from one event loop at a time."""

    def __init__(
        self,
        url: str,
        judge_id: str,
        *,
        seed: int = 0,
        deadline_s: float = 600.0,
        retries: int = 4,
        concurrency: int = 16,
    ) -> None:
        """Use `connect`, which asks the service who judges there. Nothing is sent yet.

        Args:
            url: address of the service, without `/verify`.
            judge_id: of the judge that must answer.
            seed: sent wherever a call names none, so that the service's own does not matter.
            deadline_s: for one case, from its first request, tries and waits included.
            retries: tries after the first on lost connections, 502 and 504. A busy service, 429 or 503, is waited for as long
                as it asks, until the deadline.
            concurrency: cases in flight at once. 1 gives an otherwise idle service the batches of one case that
                `Judge.verify` makes, hence the same bits.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; expected at least 1")
        self.url = url.rstrip("/")
        self.judge_id = judge_id
        self.seed = seed
        self._deadline_s, self._retries, self._concurrency = deadline_s, retries, concurrency
        self._client = LoopClient(self.url)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        seed: int = 0,
        deadline_s: float = 600.0,
        retries: int = 4,
        concurrency: int = 16,
        connect_s: float = 30.0,
    ) -> Self:
        """Ask the service who judges there, again and again for up to `connect_s`. Blocks.

        Raises:
            UnreachableError: it does not answer, or not as `medverify serve` does.
        """
        try:
            judge_id = told(url, "judge_id", timeout_s=connect_s, retries=retries)
        except NotToldError as error:
            raise UnreachableError(f"{error}; start one with `medverify serve`") from error
        return cls(url, judge_id, seed=seed, deadline_s=deadline_s, retries=retries, concurrency=concurrency)

    @property
    def max_together(self) -> int:
        """Cases of a wave, of which `concurrency` are in flight at once."""
        return _WAVES * self._concurrency

    def calibrates(self, judgment: Judgment) -> bool:
        """A calibration is the service's own affair: whatever it said stands."""
        return True

    async def aclose(self) -> None:
        """Close the connections. May be called more than once."""
        await self._client.aclose()

    async def verify(self, case: Case, seed: int | None = None) -> Judgment:
        """Judge one case. Always returns: whatever fails is a status, never a number."""
        seed = self.seed if seed is None else seed
        body = {"case": case.model_dump(mode="json", exclude_none=True), "seed": seed}
        try:
            judgment = await self.ask(body)
            if (judgment.id, judgment.case_digest, judgment.seed) != (case.id, case.digest, seed):
                raise WrongAnswerError(f"{self.url}: answered for {judgment.id!r}, seed {judgment.seed}, not as asked")
        except OutOfTimeError as error:
            return self._failure(case, Status.TIMEOUT, StopReason.DEADLINE, error, seed)
        except RemoteJudgeError as error:
            return self._failure(case, Status.ENGINE_FAILED, StopReason.ENGINE_ERROR, error, seed)
        return judgment

    async def verify_together(self, cases: Sequence[Case], seed: int | None = None) -> list[Judgment]:
        """Judge cases, each in a request of its own, so that none can take another with it. In the order of `cases`."""
        places = asyncio.Semaphore(self._concurrency)

        async def one(case: Case) -> Judgment:
            async with places:
                return await self.verify(case, seed)

        return await asyncio.gather(*map(one, cases))

    async def ask(self, body: Mapping[str, Any]) -> Judgment:
        """Send a body as it is, also one that no `Case` could be; `verify` makes the body of a case.

        Raises:
            RefusedError: the service will not judge it.
            OutOfTimeError: no judgment before the deadline.
            UnreachableError: no connection, at every try.
            WrongAnswerError: the answer is not a judgment, or by another judge.
            RemoteJudgeError: anything else that is not a judgment.
        """
        failures = list[RemoteJudgeError]()
        try:
            async with asyncio.timeout(self._deadline_s):
                return self._read(await self._answer(body, failures))
        except TimeoutError as error:
            last = f"; the last try: {failures[-1]}" if failures else ""
            raise OutOfTimeError(f"{self.url}: no judgment within {self._deadline_s:g} s{last}") from (
                failures[-1] if failures else error
            )

    async def _answer(self, body: Mapping[str, Any], failures: list[RemoteJudgeError]) -> Answer:
        """The first answer that another try would not change.

        Args:
            failures: of each try that was in vain; appended to.

        Raises:
            TimeoutError: the next try would be too late.
            UnreachableError: there are no more tries.
            WrongAnswerError: the answer is too long, or cannot be unpacked.
        """
        loop, client = asyncio.get_running_loop(), self._client.here()
        ends, tries_left = loop.time() + self._deadline_s, self._retries
        while True:
            asked_s, busy = 0.0, False
            try:
                reply = await ask(client, "POST", "/verify", body=body, most=_MOST_BYTES)
            except httpx2.RequestError as error:
                failures.append(UnreachableError(f"{self.url}: {type(error).__name__}: {error}"))
            except RetrievalError as error:  # what came is no answer, and would be none the next time
                raise WrongAnswerError(str(error)) from error
            else:
                busy = reply.status in _BUSY
                if not busy and reply.status not in _AWAY:
                    return reply
                failures.append(UnreachableError(f"{self.url}: {reply.described()}"))
                asked_s = retry_after_s(reply.headers)
            if not busy:
                tries_left -= 1
                if tries_left < 0:
                    raise UnreachableError(f"{failures[-1]}; tried {self._retries + 1} times")
            pause_s = wait_s(len(failures), asked_s)
            if loop.time() + pause_s >= ends:
                raise TimeoutError
            await asyncio.sleep(pause_s)

    def _read(self, reply: Answer) -> Judgment:
        if reply.status in _REFUSALS:
            raise RefusedError(f"{self.url}: {reply.described()}")
        if reply.status != 200:
            raise RemoteJudgeError(f"{self.url}: {reply.described()}")
        try:
            judgment = Judgment.model_validate_json(reply.body)
        except ValidationError as error:
            raise WrongAnswerError(f"{self.url}: the answer is not a judgment: {error!s:.300}") from error
        if judgment.judge_id != self.judge_id:
            raise WrongAnswerError(
                f"{self.url}: the judge was {self.judge_id[:12]}… and is {judgment.judge_id[:12]}… now; a run has one judge"
            )
        return judgment

    def _failure(self, case: Case, status: Status, reason: StopReason, error: Exception, seed: int) -> Judgment:
        return Judgment.unjudged(case, status, reason, str(error), seed=seed, judge_id=self.judge_id)
