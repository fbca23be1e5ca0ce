"""Long batches that a service works on while its caller does something else."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from time import monotonic
from typing import Any

from pydantic import ValidationError

from medverify.calls import SHORT_S, Calls, given
from medverify.replies import Job, Jobs, case_of
from verifier.service import OutOfTimeError, WrongAnswerError
from verifier.types import Case, Judgment

_FIRST_POLL_S, _LONGEST_POLL_S = 0.2, 5.0


class JobCalls(Calls):
    """The calls about jobs."""

    async def submit(self, cases: Iterable[Case | Mapping[str, Any]], *, seed: int | None = None) -> Job:
        """Hand in a long batch, which survives a restart of the service. It is sent once: a lost answer may leave a job."""
        asked = [case_of(case, place) for place, case in enumerate(cases)]
        body = {"cases": [case.model_dump(mode="json", exclude_none=True) for case in asked], **given(seed=seed)}
        reply = await self._call("POST", "/jobs", self._ends(None), body=body, repeatable=False)
        return self._service.read(reply, Job)

    async def job(self, job_id: str) -> Job:
        """How far a job is."""
        return self._service.read(await self._call("GET", f"/jobs/{_segment(job_id)}", self._soon()), Job)

    async def jobs(self) -> list[Job]:
        """The jobs that the service knows of."""
        return self._service.read(await self._call("GET", "/jobs", self._soon()), Jobs).jobs

    async def cancel(self, job_id: str) -> Job:
        """Stop a job; what is judged stays."""
        return self._service.read(await self._call("DELETE", f"/jobs/{_segment(job_id)}", self._soon()), Job)

    async def wait(self, job_id: str, *, deadline_s: float | None = None) -> Job:
        """Wait until a job is over; asks more and more rarely.

        Args:
            job_id: from `submit`.
            deadline_s: seconds; without end if None, for a job may take days.

        Raises:
            OutOfTimeError: it is not over by then; it goes on.
            RemoteJudgeError: the service cannot be asked.
        """
        ends, pause_s = None if deadline_s is None else monotonic() + deadline_s, _FIRST_POLL_S
        while not (job := await self.job(job_id)).over:
            if ends is not None and monotonic() + pause_s >= ends:
                raise OutOfTimeError(f"{self.url}: job {job_id} has {job.done} of {job.total} after {deadline_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_POLL_S, pause_s * 1.5)
        return job

    async def results(self, job_id: str) -> AsyncIterator[Judgment]:
        """The judgments of a job so far, one after another.

        Raises:
            RemoteJudgeError: they cannot be had, or no longer.
        """
        async for line in self._service.lines(f"/jobs/{_segment(job_id)}/results", idle_s=SHORT_S):
            try:
                yield Judgment.model_validate_json(line)
            except ValidationError as error:
                raise WrongAnswerError(f"{self.url}: a line is not a judgment: {error!s:.300}") from error


def _segment(job_id: str) -> str:
    """A job's id as a part of a path."""
    if not job_id or not all(letter.isalnum() or letter in "-_" for letter in job_id):
        raise ValueError(f"{job_id!r:.80} is no id of a job")
    return job_id
