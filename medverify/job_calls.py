"""Long batches that a service works on while its caller does something else."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from time import monotonic
from typing import Any

from pydantic import ValidationError

from medverify.calls import SHORT_S, Calls
from medverify.replies import Job, JobResult, Jobs, case_of
from retrieval.answers import Lines
from verifier.service import OutOfTimeError, WrongAnswerError
from verifier.types import Case

_FIRST_POLL_S, _LONGEST_POLL_S = 0.2, 5.0


class JobCalls(Calls):
    """The calls about jobs."""

    async def submit(self, cases: Iterable[Case | Mapping[str, Any]], *, seed: int | None = None) -> Job:
        """Hand in a long batch, which survives a restart of the service. It is sent once: a lost answer may leave a job.

        Args:
            cases: as for `verify_many`; a missing id is the case's place.
            seed: of the judge's sampling; the service's own if None.

        Raises:
            pydantic.ValidationError: one is no case.
            RemoteJudgeError: the service has not taken it, or its answer was lost.
        """
        asked = [case_of(case, place) for place, case in enumerate(cases)]
        lines = Lines(b"".join(case.model_dump_json(exclude_none=True).encode() + b"\n" for case in asked))
        path = "/jobs" if seed is None else f"/jobs?seed={seed}"
        return self._service.read(await self._call("POST", path, self._ends(None), body=lines, repeatable=False), Job)

    async def job(self, job_id: str) -> Job:
        """How far a job is."""
        return self._service.read(await self._call("GET", f"/jobs/{_segment(job_id)}", self._soon()), Job)

    async def jobs(self) -> list[Job]:
        """The jobs that the service knows of."""
        return self._service.read(await self._call("GET", "/jobs", self._soon()), Jobs).jobs

    async def cancel(self, job_id: str) -> Job:
        """Stop a job; what is judged stays."""
        return self._service.read(await self._call("DELETE", f"/jobs/{_segment(job_id)}", self._soon()), Job)

    async def retry(self, job_id: str) -> Job:
        """Judge again what an outage or a deadline left without a judgment, and what a cancelled job had left."""
        return self._service.read(await self._call("POST", f"/jobs/{_segment(job_id)}/retry", self._soon()), Job)

    async def wait(self, job_id: str, *, deadline_s: float | None = None) -> Job:
        """Wait until a job is over; asks more and more rarely.

        Args:
            job_id: from `submit`.
            deadline_s: seconds; without end if None, for a job may take days.

        Raises:
            OutOfTimeError: it is not over by then; it goes on.
            RefusedError: `deadline_s` is no number of seconds.
            RemoteJudgeError: the service cannot be asked.
        """
        ends, pause_s = None if deadline_s is None else self._ends(deadline_s), _FIRST_POLL_S
        while not (job := await self.job(job_id)).over:
            if ends is not None and monotonic() + pause_s >= ends:
                raise OutOfTimeError(f"{self.url}: job {job_id} has {job.done} of {job.total} after {deadline_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_POLL_S, pause_s * 1.5)
        return job

    async def results(self, job_id: str) -> AsyncIterator[JobResult]:
        """The judgments of a job so far, in the order in which they were made; `index` is the case's place.

        Raises:
            RemoteJudgeError: they cannot be had, or no longer.
        """
        async for line in self._service.lines(f"/jobs/{_segment(job_id)}/results", idle_s=SHORT_S):
            try:
                yield JobResult.model_validate_json(line)
            except ValidationError as error:
                raise WrongAnswerError(f"{self.url}: a line is not a judgment: {error!s:.300}") from error


def _segment(job_id: str) -> str:
    """A job's id as a part of a path."""
    if not job_id or not all(letter.isalnum() or letter in "-_" for letter in job_id):
        raise ValueError(f"{job_id!r:.80} is no id of a job")
    return job_id
