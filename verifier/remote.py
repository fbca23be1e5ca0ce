"""A judge at a URL: the one client of `POST /verify` for whatever judges many cases.

It keeps the promises of `Judge`: `verify` always returns, and what fails is a status, never a number. An answer that is not
for the case that was sent, or by another judge than the one that was met first, is such a failure too: a run must be able to
name who judged.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

from retrieval.told import NotToldError, told
from verifier.service import (
    JudgingServiceAtUrl,
    OutOfTimeError,
    RefusedError,
    RemoteJudgeError,
    UnauthorisedError,
    UnreachableError,
    WrongAnswerError,
    bearer,
)
from verifier.types import Case, Judgment, Status, StopReason

__all__ = [
    "OutOfTimeError",
    "RefusedError",
    "RemoteJudge",
    "RemoteJudgeError",
    "UnauthorisedError",
    "UnreachableError",
    "WrongAnswerError",
]

API_KEY = "MEDVERIFY_API_KEY"  # environment variable that holds a service's key
_MOST_BYTES = 64 * 2**20  # of a judgment
_WAVES = 4  # times `concurrency`: one slow case then leaves few places empty


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
        api_key: str | None = None,
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
            api_key: of the service; else what the environment variable MEDVERIFY_API_KEY holds.

        Raises:
            ValueError: `concurrency` is below 1, or the URL is none.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; expected at least 1")
        self._service = JudgingServiceAtUrl(url, api_key=api_key or os.environ.get(API_KEY), retries=retries)
        self.url = self._service.url
        self.judge_id = judge_id
        self.seed = seed
        self._deadline_s, self._concurrency = deadline_s, concurrency
        self._api_key, self._retries = api_key or os.environ.get(API_KEY), retries

    def told(self, field: str, timeout_s: float = 30.0) -> str:
        """What the service's `/info` says under `field`. Blocks.

        Raises:
            UnreachableError: it does not answer, or not as `medverify serve` does.
        """
        return _told(self.url, field, timeout_s, self._retries, self._api_key)

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
        api_key: str | None = None,
    ) -> Self:
        """Ask the service who judges there, again and again for up to `connect_s`. Blocks.

        Raises:
            UnreachableError: it does not answer, or not as `medverify serve` does.
        """
        api_key = api_key or os.environ.get(API_KEY)
        return cls(
            url,
            _told(url, "judge_id", connect_s, retries, api_key),
            seed=seed,
            deadline_s=deadline_s,
            retries=retries,
            concurrency=concurrency,
            api_key=api_key,
        )

    @property
    def max_together(self) -> int:
        """Cases of a wave, of which `concurrency` are in flight at once."""
        return _WAVES * self._concurrency

    def calibrates(self, judgment: Judgment) -> bool:
        """A calibration is the service's own affair: whatever it said stands."""
        return True

    def seeded(self, seed: int) -> Self:
        """The same judge, asked with another seed over the same connections."""
        twin = copy(self)
        twin.seed = seed
        return twin

    async def aclose(self) -> None:
        """Close the connections. May be called more than once."""
        await self._service.aclose()

    async def verify(self, case: Case, seed: int | None = None) -> Judgment:
        """Judge one case. Always returns: whatever fails is a status, never a number."""
        seed = self.seed if seed is None else seed
        body = {"case": case.model_dump(mode="json", exclude_none=True), "seed": seed}
        try:
            judgment = await self.ask(body)
            self._service.check_answers(judgment, case, seed)
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
            UnauthorisedError, RefusedError: the service will not judge it.
            OutOfTimeError: no judgment before the deadline.
            UnreachableError: no connection, at every try.
            WrongAnswerError: the answer is not a judgment, or by another judge.
            RemoteJudgeError: anything else that is not a judgment.
        """
        reply = await self._service.call("POST", "/verify", body=body, deadline_s=self._deadline_s, most=_MOST_BYTES)
        judgment = self._service.read(reply, Judgment)
        if judgment.judge_id != self.judge_id:
            raise WrongAnswerError(
                f"{self.url}: the judge was {self.judge_id[:12]}… and is {judgment.judge_id[:12]}… now; a run has one judge"
            )
        return judgment

    def _failure(self, case: Case, status: Status, reason: StopReason, error: Exception, seed: int) -> Judgment:
        return Judgment.unjudged(case, status, reason, str(error), seed=seed, judge_id=self.judge_id)


def _told(url: str, field: str, timeout_s: float, retries: int, api_key: str | None) -> str:
    try:
        return told(url, field, timeout_s=timeout_s, retries=retries, headers=bearer(api_key))
    except NotToldError as error:
        raise UnreachableError(f"{error}; start one with `medverify serve`") from error
