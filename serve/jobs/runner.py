"""Judging the cases of jobs: a few at a time, so that those who wait for an answer are served first."""

import asyncio
import logging
from collections import deque

from serve import request_ids
from serve.callers import Caller
from serve.errors import ServiceError
from serve.jobs.disk import Disk
from serve.jobs.files import result_line
from serve.jobs.job import Job
from serve.judging import JudgingService
from serve.stores import Asked
from serve.watching import Admitted, Told
from verifier.types import Case, Judgment, Status, StopReason

logger = logging.getLogger(__name__)

_OTHERS = "its judge: another one is loaded here"


class JobRunner:
    """Takes cases from each job in turn. Used on the event loop."""

    def __init__(self, service: JudgingService, disk: Disk, *, in_flight: int, retry_s: float) -> None:
        """Args:
        service: what judges.
        disk: where work that waits for the disk is done.
        in_flight: cases judged at once.
        retry_s: seconds before what failed for want of room is tried again.
        """
        self._service = service
        self._disk = disk
        self._in_flight = in_flight
        self._retry_s = retry_s
        self._waiting = deque[Job]()  # whose turn it is: each in turn gives one case
        self._there_is_work = asyncio.Event()
        self._workers = list[asyncio.Task[None]]()
        self._judging = set[asyncio.Task[Judgment]]()

    def start(self) -> None:
        """Begin with what is queued."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._in_flight)]

    async def aclose(self) -> None:
        """Stop; what is being judged has no result."""
        tasks = [*self._workers, *self._judging]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def queue(self, job: Job) -> None:
        """See to it that the cases of a job that wait are judged, if it is this judge that is to judge them."""
        if job.spec.judge_id != self._service.judge.judge_id:
            job.waiting_for = _OTHERS
        elif job not in self._waiting and not job.over:
            self._waiting.append(job)
            self._there_is_work.set()

    async def _work(self) -> None:
        while True:
            if (taken := self._take()) is None:
                self._there_is_work.clear()
                await self._there_is_work.wait()
                continue
            job, index = taken
            judging = asyncio.create_task(self._judge(job, index))
            job.judging[index] = judging
            self._judging.add(judging)
            await asyncio.wait({judging})
            self._judging.discard(judging)
            del job.judging[index]
            if judging.cancelled():
                job.give_back(index)
                self.queue(job)  # it may have been taken up again meanwhile
            else:
                await self._keep(job, index, judging.result())

    def _take(self) -> tuple[Job, int] | None:
        while self._waiting:
            job = self._waiting.popleft()
            if (index := job.take()) is not None:
                self._waiting.append(job)
                return job, index
        return None

    async def _judge(self, job: Job, index: int) -> Judgment:
        """The judgment of a case, however long it takes until there is room for it."""
        request_ids.begin(f"{job.spec.id}/{index}".encode())  # for the log, and for what a failure tells
        case: Case | None = None
        while True:
            wait_s: float = self._retry_s
            try:
                if case is None:
                    case = await self._disk(job.files.case, index)
                judgment, began = await self._asked(job, case)
                if began or judgment.status is not Status.TIMEOUT:
                    return judgment
                job.waiting_for, wait_s = f"room in the service: {judgment.detail}", 0.0  # it was waited for already
            except ServiceError as error:
                if error.status not in (429, 503) and case is not None:
                    return self._unjudged(job, case, error.detail)
                job.waiting_for = f"room in the service: {error.detail}"
                wait_s = _seconds(error.headers.get("Retry-After"), wait_s)
            except Exception as error:
                if case is not None:
                    logger.exception("job %s, case %d: unexpected error", job.spec.id, index)
                    return self._unjudged(job, case, "the service met an error of its own")
                logger.error("job %s: case %d cannot be read: %s", job.spec.id, index, error)
                job.waiting_for = "its cases, which cannot be read at the moment"
            await asyncio.sleep(wait_s)

    async def _asked(self, job: Job, case: Case) -> tuple[Judgment, bool]:
        """The judgment, and whether an episode began: a case that got no place by its deadline has not had its turn."""
        told = list[Told]()
        [judgment] = await self._service.answer_all(
            [Asked(case, job.spec.seed)], caller=Caller(job.spec.caller), watch=told.append
        )
        return judgment, any(not isinstance(event, Admitted) for event in told)

    async def _keep(self, job: Job, index: int, judgment: Judgment) -> None:
        """Write a result down, however long it takes until there is room for it."""
        line = result_line(index, judgment)
        while not job.gone:
            try:
                await self._disk(job.files.append, line)
            except Exception as error:  # whatever it was, this worker must go on: nobody would start another
                if not job.unwritable:
                    logger.exception("job %s: results cannot be written", job.spec.id)
                job.unwritable = True
                why = error.strerror if isinstance(error, OSError) else "the service met an error of its own"
                job.waiting_for = f"room for its results on the disk: {why}"
                await asyncio.sleep(self._retry_s)
                continue
            job.unwritable = False
            job.finish(index, judgment.status)
            self.queue(job)
            return

    def _unjudged(self, job: Job, case: Case, detail: str) -> Judgment:
        return Judgment.unjudged(
            case,
            Status.ENGINE_FAILED,
            StopReason.ENGINE_ERROR,
            detail,
            seed=job.spec.seed,
            judge_id=job.spec.judge_id,
        )


def _seconds(text: str | None, otherwise: float) -> float:
    return float(text) if text is not None and text.isdigit() else otherwise
