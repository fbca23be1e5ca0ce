"""All jobs of a service: handed in, looked for, cancelled, retried, deleted; taken over from a process that is no more."""

import asyncio
import fcntl
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from configs.durable import own_folder
from configs.settings import ServeSettings
from serve.admission import draining
from serve.callers import Caller
from serve.errors import ServiceError
from serve.jobs.disk import Disk
from serve.jobs.files import Draft, JobFiles, JobSpec, sweep
from serve.jobs.job import Job
from serve.jobs.runner import JobRunner
from serve.judging import JudgingService
from verifier.types import OUTAGES

logger = logging.getLogger(__name__)

_TIDY_S = 60.0  # between two looks for jobs that are too old
_PATIENCE_S = 2.0  # with the disk, before the service starts without its jobs, which then come later


class JobKeeper:
    """Keeps the jobs and has them judged. Used on the event loop."""

    def __init__(self, service: JudgingService, settings: ServeSettings, folder: Path | None) -> None:
        """Args:
        service: what judges.
        settings: how many cases and jobs, and how long it waits after a failure.
        folder: where jobs are kept; None: there are none.
        """
        self._service = service
        self._settings = settings.jobs
        self._retry_s = settings.retry_after_s
        self._folder = folder
        self._jobs = dict[str, Job]()
        self._disk = Disk()
        self._runner = JobRunner(service, self._disk, in_flight=settings.jobs.in_flight, retry_s=settings.retry_after_s)
        self._lock: int | None = None  # held by the process that keeps the folder
        self._drafts: dict[str, Draft | None] = {}  # None: its folder is being made
        self._tasks = list[asyncio.Task[None]]()

    # ---- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take over what is on the disk and go on with it: now, or as soon as it is read and no other process has it."""
        if self._folder is None:
            return
        self._runner.start()
        first = asyncio.create_task(self._take_over(self._folder))
        await asyncio.wait({first}, timeout=_PATIENCE_S)
        self._tasks.append(asyncio.create_task(self._see_to_it(self._folder, first)))
        self._tasks.append(asyncio.create_task(self._keep_tidy()))

    async def aclose(self) -> None:
        """Stop; what is being judged is judged after the next start."""
        await self._runner.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._disk.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _take_over(self, folder: Path) -> bool:
        try:
            self._lock, found = await self._disk(_open, folder)
        except BlockingIOError:
            logger.warning("another process works on the jobs; they go on here when it ends")
            return False
        except OSError as error:
            logger.error("jobs cannot be kept: %s", error)
            return False
        for job in found:
            self._jobs[job.spec.id] = job
            self._runner.queue(job)
        return True

    async def _see_to_it(self, folder: Path, taking: asyncio.Task[bool]) -> None:
        while not await taking:
            await asyncio.sleep(self._retry_s)  # nobody tells that another process has ended
            taking = asyncio.create_task(self._take_over(folder))

    async def _keep_tidy(self) -> None:
        while True:
            for job in [job for job in self._jobs.values() if job.expired(self._settings.retention_days)]:
                with suppress(ServiceError):
                    await self.forget(job)
            await asyncio.sleep(_TIDY_S)

    # ---- what callers ask for ------------------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """All jobs, the newest first.

        Raises:
            ServiceError: 503, if another process has them.
        """
        self._check_open()
        return sorted(self._jobs.values(), key=lambda job: (-job.spec.created, job.spec.id))

    def find(self, id: str) -> Job | None:
        """The job with this id; raises as `jobs`."""
        self._check_open()
        return self._jobs.get(id)

    async def draft(self, id: str) -> Draft:
        """Begin a job, which `add` or `discard` ends.

        Raises:
            ServiceError: 404 where no jobs are kept; 503 if there is no room for another, or the service is about to stop.
        """
        if self._folder is None:
            raise ServiceError(404, "no-jobs", "No jobs here", "this service keeps no jobs")
        self._check_new_work()
        if len(self._jobs) + len(self._drafts) >= self._settings.max_jobs:
            raise self._full(f"{len(self._jobs)} jobs are kept, and there is room for {self._settings.max_jobs}")
        self.check_room()
        self._drafts[id] = None
        try:
            self._drafts[id] = draft = await asyncio.to_thread(Draft, self._folder, id)
        except BaseException as error:
            del self._drafts[id]
            if isinstance(error, OSError):
                raise self.unwritable(error) from error
            raise
        return draft

    def check_room(self) -> None:
        """Return if jobs, and uploads under way, leave room on the disk.

        Raises:
            ServiceError: 503; they fill what there is for them.
        """
        kept = sum(job.files.kept_bytes for job in self._jobs.values())
        if kept + sum(draft.received for draft in self._drafts.values() if draft) >= self._settings.max_kept_bytes:
            raise self._full("the jobs that are kept fill the room that there is for them")

    async def discard(self, draft: Draft) -> None:
        """Leave nothing of a draft."""
        del self._drafts[draft.id]
        await asyncio.to_thread(draft.discard)

    async def add(self, draft: Draft, *, caller: Caller, seed: int | None, total: int) -> Job:
        """Make a draft a job, which begins at once. The draft has to be discarded all the same.

        Raises:
            ServiceError: 503, if it cannot be written.
        """
        judge = self._service.judge
        spec = JobSpec(
            id=draft.id,
            caller=caller.name,
            judge_id=judge.judge_id,
            seed=judge.seed if seed is None else seed,
            total=total,
            created=time.time(),
        )
        try:
            job = Job(await asyncio.to_thread(draft.publish, spec), {})
        except OSError as error:
            raise self.unwritable(error) from error
        self._jobs[spec.id] = job
        self._runner.queue(job)
        return job

    async def cancel(self, job: Job) -> None:
        """Stop a job and keep its results so far; nothing happens to one that is over.

        Raises:
            ServiceError: 503, if it cannot be written down, and then it goes on.
        """
        if job.over:
            return
        try:
            await self._disk(job.files.set_cancelled, True)
        except OSError as error:
            raise self.unwritable(error) from error
        job.cancel()

    async def retry(self, job: Job) -> None:
        """Judge again what an outage or a deadline left without a judgment, and whatever a cancelled job had left.

        Raises:
            ServiceError: 503, if it cannot be written down or the service is about to stop, and then nothing happens.
        """
        self._check_new_work()
        try:
            dropped = await self._disk(job.files.drop, OUTAGES) if job.counts.keys() & OUTAGES else {}
            await self._disk(job.files.set_cancelled, False)
        except OSError as error:
            raise self.unwritable(error) from error
        job.reopen(dropped)
        self._runner.queue(job)

    async def forget(self, job: Job) -> None:
        """Delete a job with its cases and results; one that is not over is cancelled.

        Raises:
            ServiceError: 503, if it cannot be deleted.
        """
        job.gone = True  # nothing is added from now on
        if not job.over:
            job.cancel()
        try:
            await self._disk(job.files.remove)
        except OSError as error:
            job.gone = False
            raise self.unwritable(error) from error
        self._jobs.pop(job.spec.id, None)

    # ---- the rest ------------------------------------------------------------------------------------------------------

    def _check_new_work(self) -> None:
        self._check_open()
        if self._service.draining:
            raise draining()

    def _check_open(self) -> None:
        if self._folder is not None and self._lock is None:
            raise self._unavailable("the jobs cannot be reached at the moment")

    def _unavailable(self, detail: str) -> ServiceError:
        headers = {"Retry-After": str(self._retry_s)}
        return ServiceError(503, "jobs-unavailable", "Jobs cannot be kept at the moment", detail, headers)

    def unwritable(self, error: OSError) -> ServiceError:
        """503: the disk does not take what has to be kept."""
        logger.error("jobs cannot be written: %s", error)
        return self._unavailable(f"nothing can be written down: {error.strerror}")

    def _full(self, detail: str) -> ServiceError:
        headers = {"Retry-After": str(self._retry_s)}
        return ServiceError(503, "jobs-full", "No room for another job", f"{detail}; delete one or wait", headers)


def _open(folder: Path) -> tuple[int, list[Job]]:
    """Take the folder for this process, and give the lock and the jobs in it.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be used.
    """
    own_folder(folder)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sweep(folder)
        jobs = list[Job]()
        for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
            try:
                files = JobFiles(path)
                jobs.append(Job(files, files.load()))
            except (OSError, ValidationError) as error:
                logger.error("job %s cannot be read and is left as it is: %s", path.name, error)
    except BaseException:
        os.close(lock)
        raise
    return lock, jobs
