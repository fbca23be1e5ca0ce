"""Judging on more than one machine, with Ray Serve: replicas hold an engine each, an ingress speaks HTTP and asks them.

The ingress is the service of one machine with another judge behind it: a `RayJudge`, which has its cases judged in replicas.
The classes are plain ones that import Ray where they meet it, so that what they do can be read and tested without a cluster;
`serve.ray_service` makes deployments of them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from retrieval.passage import Hit, RetrievalError, Retriever, UnavailableError
from serve import request_ids
from serve.engine_health import EngineHealth
from serve.schemas import Info
from verifier.calibration import Calibration
from verifier.events import Event, Watch, unwatched
from verifier.judge import Judge
from verifier.types import Case, Judgment, Status, StopReason

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

logger = logging.getLogger(__name__)

_TRIES = 2  # of a case whose replica is lost; a case that is the reason of the loss must not take all replicas with it
_LAST_WORD_S = 0.5  # beyond the deadline, for the replica's own judgment that there was no time
_LOOK_S = 1.0  # between two looks at whether a replica can still be expected


class OtherJudgeError(RuntimeError):
    """The replica does not hold the judge that the caller means: an update is under way."""


class Accepted(NamedTuple):
    """The first thing that a replica says: the case is here."""


class Identity(NamedTuple):
    """What a replica says of itself: the same in all of them."""

    info: Info
    calibrations: Mapping[str, Calibration | None]  # by the ids of its judges


class JudgeReplica:
    """A deployment that holds an engine, and on it a judge for each question that is asked about a trace."""

    def __init__(self, load: Callable[[], tuple[Sequence[Judge], Info]]) -> None:
        """Load the judges; what cannot be loaded keeps the replica from starting, and Ray Serve says why."""
        judges, self._info = load()
        self._judges = {judge.judge_id: judge for judge in judges}
        self._retriever = judges[0].retriever
        self._is_warm = False
        self._health = EngineHealth(judges[0])

    def about(self) -> Identity:
        """What judges here."""
        return Identity(self._info, {name: judge.calibration for name, judge in self._judges.items()})

    async def judge(
        self, judge_id: str, case: Case, seed: int, deadline_s: float, request: str | None = None
    ) -> AsyncIterator[Accepted | Event | Judgment]:
        """Judge a case: tells that it has it, what happens as it happens, and last the judgment.

        Args:
            judge_id: which judge.
            case: what is judged.
            seed: of what is drawn.
            deadline_s: for the case.
            request: the id under which the ingress has it, for the log.

        Raises:
            OtherJudgeError: the judge that the caller means is not here.
        """
        request_ids.resume(request)
        if judge_id not in self._judges:
            here = ", ".join(name[:12] for name in self._judges)
            raise OtherJudgeError(f"this replica holds judge {here}, asked was {judge_id[:12]}")
        yield Accepted()
        happened = asyncio.Queue[Event | None]()
        judging = asyncio.ensure_future(
            self._judges[judge_id].verify(case, seed, deadline_s=deadline_s, watch=happened.put_nowait)
        )
        judging.add_done_callback(lambda _: happened.put_nowait(None))
        try:
            while (event := await happened.get()) is not None:
                yield event
            judgment = judging.result()
            self._health.saw(judgment.status)
            yield judgment
        finally:  # also where the caller has left
            judging.cancel()
            await asyncio.gather(judging, return_exceptions=True)

    async def search(self, query: str, k: int, request: str | None = None) -> list[Hit]:
        """Search the judges' index; `request` as for `judge`."""
        request_ids.resume(request)
        return await self._retriever.search(query, k)

    async def check_health(self) -> None:
        """Ray Serve asks this before it gives cases to a replica, and then now and then; what fails is replaced.

        A replica that got nothing but bad cases is in order.

        Raises:
            EngineError: the engine cannot be warmed up.
            UnhealthyError: the engine fails whatever it is given.
        """
        if not self._is_warm:
            for judge in self._judges.values():
                await judge.warm_up()
            self._is_warm = True
        await self._health.check()


class _ReplicaLostError(Exception):
    """The replica that had a case ended before there was a judgment."""


class _NotJudgedError(Exception):
    """There is no judgment, and another replica would give none either."""


class RayJudge:
    """Implements `ServedJudge` by replicas, reached through the handle of their deployment."""

    def __init__(
        self,
        replicas: "DeploymentHandle[Any]",
        retriever: Retriever,
        judge_id: str,
        calibration: Calibration | None,
        *,
        seed: int,
        deadline_s: float,
        max_together: int,
        is_leaving: Callable[[], Awaitable[bool]],
    ) -> None:
        """Args:
        replicas: handle of a `JudgeReplica` deployment.
        retriever: what its judges search.
        judge_id: which of its judges.
        calibration: of that judge.
        seed: in force wherever a call names none.
        deadline_s: for a case, the wait for a replica included.
        max_together: cases that are given to replicas; more wait.
        is_leaving: whether the application is being taken away; asked while a case waits for a replica.
        """
        self.retriever, self.judge_id, self._calibration = retriever, judge_id, calibration
        self.seed, self.deadline_s, self.max_together = seed, deadline_s, max_together
        self._replicas = replicas.options(stream=True)
        self._is_leaving = is_leaving

    def calibrated(self, p_correct: float | None) -> float | None:
        """What a p(1) of this judge means; None without a calibration, and for a case that was not judged."""
        return None if self._calibration is None or p_correct is None else self._calibration.apply(p_correct)

    async def warm_up(self) -> None:
        """Replicas do this by themselves, before they are asked."""

    async def aclose(self) -> None:
        """Replicas end by themselves."""

    async def verify(
        self, case: Case, seed: int | None = None, *, deadline_s: float | None = None, watch: Watch = unwatched
    ) -> Judgment:
        """Judge one case in a replica. Always returns: whatever fails is a status, never a number.

        A case whose replica is lost is given to another one, once: the episode begins anew, and `watch` is told of its
        beginning again.
        """
        seed = self.seed if seed is None else seed
        allowed_s = min(filter(None, (self.deadline_s, deadline_s)))
        ends = monotonic() + allowed_s
        losses = list[_ReplicaLostError]()
        try:
            async with asyncio.timeout(allowed_s + _LAST_WORD_S):
                while len(losses) < _TRIES:
                    try:
                        return await self._judged_by_replica(case, seed, max(ends - monotonic(), 0.001), watch)
                    except _ReplicaLostError as lost:
                        losses.append(lost)
        except TimeoutError:
            status, reason = Status.TIMEOUT, StopReason.DEADLINE
            detail = f"no judgment within {allowed_s:g} s"
            if losses:
                logger.warning("case %s: late after a loss: %s", case.digest, losses[-1])
        except _NotJudgedError as error:
            status, reason, detail = Status.ENGINE_FAILED, StopReason.ENGINE_ERROR, str(error)
        else:
            status, reason = Status.ENGINE_FAILED, StopReason.ENGINE_ERROR
            detail = f"{losses[-1]}; tried {_TRIES} times"
        return Judgment.unjudged(case, status, reason, detail, seed=seed, judge_id=self.judge_id)

    async def _judged_by_replica(self, case: Case, seed: int, deadline_s: float, watch: Watch) -> Judgment:
        from ray.exceptions import RayError
        from ray.serve.exceptions import RayServeException

        answer: DeploymentResponseGenerator[Any] | None = None
        judgment: Judgment | None = None
        ended = False
        try:
            answer = self._replicas.judge.remote(self.judge_id, case, seed, deadline_s, request_ids.request_id())
            await self._accepted(answer)
            async for item in answer:
                if isinstance(item, Judgment):
                    judgment = item
                else:
                    watch(item)
            ended = True
        except (RayError, RayServeException) as error:
            if (cause := _raised_there(error)) is None:
                raise _ReplicaLostError("the replica that judged this case is gone") from error
            if isinstance(cause, OtherJudgeError):
                raise _ReplicaLostError(str(cause)) from error
            logger.error("case %s: the replica failed", case.digest, exc_info=error)
            raise _NotJudgedError(f"the replica failed: {type(cause).__name__}") from error
        finally:
            if answer is not None and not ended:
                answer.cancel()
        if judgment is None:
            raise _NotJudgedError("the replica ended its answer without a judgment")
        return judgment

    async def _accepted(self, answer: AsyncIterator[Any]) -> None:
        """Wait for a replica to have the case.

        Ray Serve lets replicas finish what they have when it takes an application away, but gives them nothing more: a case
        that none has would wait in vain.

        Raises:
            _NotJudgedError: the application is being taken away.
        """
        first = asyncio.ensure_future(anext(answer, None))
        try:
            while not (await asyncio.wait({first}, timeout=_LOOK_S))[0]:
                if await self._is_leaving():
                    raise _NotJudgedError("the service is being taken away, and no judge has taken this case")
            await first
        finally:
            first.cancel()


class RayRetriever:
    """Implements `retrieval.passage.Retriever` by the index of whichever replica is asked."""

    def __init__(self, replicas: "DeploymentHandle[Any]", digest: str) -> None:
        self._replicas = replicas
        self.digest = digest

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the best hits, best first; raises as every retriever does."""
        from ray.exceptions import RayError
        from ray.serve.exceptions import RayServeException

        try:
            return await self._replicas.search.remote(query, k, request_ids.request_id())  # type: ignore[no-any-return]
        except (RayError, RayServeException) as error:
            if (cause := _raised_there(error)) is None:
                raise UnavailableError("the replica that searched is gone") from error
            if isinstance(cause, RetrievalError):
                raise cause from None  # as it was raised there, without Ray's copy of the traceback
            raise RetrievalError(f"the replica failed: {type(cause).__name__}") from error

    async def aclose(self) -> None:
        """The index is the replicas'."""


def _raised_there(error: Exception) -> Exception | None:
    """What a replica's own code raised; None: the replica or its answer was lost, or Ray Serve took the call away."""
    from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError
    from ray.serve.exceptions import RayServeException

    # Ray raises what a replica raised as a class of both kinds, and a call that was taken away like that as well.
    taken_away = (RayActorError, RayServeException, TaskCancelledError)
    return error.cause if isinstance(error, RayTaskError) and not isinstance(error, taken_away) else None
