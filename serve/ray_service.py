"""The judge's service as a Ray Serve application: deployments of `serve.ray_judge`, and the same HTTP as on one machine."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Self

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, model_validator

from configs.settings import Settings
from serve.app import create_app
from serve.callers import OpenToAllError, check_start
from serve.logs import write_log
from serve.ray_judge import Identity, JudgeReplica, RayJudge, RayRetriever
from serve.schemas import Info
from serve.stores import Stores
from verifier.judge import Judge

if TYPE_CHECKING:
    from ray.serve import Application
    from ray.serve.handle import DeploymentHandle

logger = logging.getLogger(__name__)

JUDGE, INGRESS = "Judge", "Ingress"  # names of the deployments

# A replica that fails three checks in a row is replaced, which makes 15 s. A call to a process that died fails at once.
_HEALTH = {"health_check_period_s": 5, "health_check_timeout_s": 5}
_OTHER_REQUESTS = 1000  # beside cases: probes, pages, refusals at the ingress, searches at a judge
_BELIEVED_S = 1.0  # how long a number of replicas is not asked for again


class JudgeCluster(BaseModel):
    """How judging is spread over a cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: Annotated[int, Field(ge=1, description="Judges, each with an engine; the least if they scale.")] = 1
    max_replicas: Annotated[
        int | None, Field(ge=1, description="The most, by the cases in flight; null: always `replicas`.")
    ] = None
    cases_per_replica: Annotated[
        int | None,
        Field(ge=1, description="Cases in flight for each judge that scaling aims at; null: those of one batch."),
    ] = None
    upscale_delay_s: Annotated[float, Field(ge=0, description="How long there must be too many cases.")] = 30.0
    downscale_delay_s: Annotated[float, Field(ge=0, description="How long there must be too few.")] = 600.0
    judge_cpus: Annotated[float, Field(ge=0, description="CPUs that Ray reserves for a judge.")] = 1
    judge_gpus: Annotated[float, Field(ge=0, description="GPUs that Ray reserves for a judge.")] = 0
    ingress_cpus: Annotated[float, Field(ge=0, description="CPUs that Ray reserves for the ingress.")] = 1
    ingress_resources: Annotated[
        dict[str, float], Field(description="Ray's names of resources that pin the ingress to where its state is.")
    ] = {}

    @model_validator(mode="after")
    def _room_to_scale(self) -> Self:
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ValueError(f"max_replicas is {self.max_replicas}, below replicas, {self.replicas}")
        return self


class Watchman:
    """What Ray Serve's controller knows of this application; not asked more often than once a second."""

    def __init__(self, application: str, deployment: str) -> None:
        self._application, self._deployment = application, deployment
        self._running, self._leaving, self._until = 0, False, 0.0

    async def running(self) -> int:
        """How many judges can be asked."""
        await self._look()
        return self._running

    async def is_leaving(self) -> bool:
        """Whether the application is being taken away."""
        await self._look()
        return self._leaving

    async def _look(self) -> None:
        if monotonic() >= self._until:
            self._running, self._leaving = await asyncio.to_thread(self._ask)
            self._until = monotonic() + _BELIEVED_S

    def _ask(self) -> tuple[int, bool]:
        from ray import serve
        from ray.serve.schema import ApplicationStatus

        known = serve.status().applications.get(self._application)
        if known is None or known.status == ApplicationStatus.DELETING:
            return 0, True
        return int(known.deployments[self._deployment].replica_states.get("RUNNING", 0)), False


class Ingress:
    """The deployment that callers reach: the judge's service, with replicas behind it.

    There is one of it: it counts the cases in flight, and keeps keys, judgments and jobs in files that are one process's.
    """

    def __init__(self, replicas: "DeploymentHandle[Any]", *, settings: Settings) -> None:
        """Args:
        replicas: handle of a `JudgeReplica` deployment.
        settings: of the judge and the service; `serve.host` is where Ray Serve listens.

        Without a key it starts where `medverify serve` does not: Ray Serve would give it up after some tries, and keys are made
        in its pod, which has to be there first. Nobody is let in until there is one.

        Raises:
            KeysError: the keys cannot be read.
        """
        write_log(settings.serve.log)
        self._replicas, self._settings = replicas, settings
        self._stores = Stores.of(settings)
        try:
            check_start(settings.serve.host, settings.serve.keys, self._stores.keys)
        except OpenToAllError as error:  # it is said of an open door, and `serve.callers.Door` is shut
            logger.warning("nobody is let in yet: %s", error)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """Ray Serve asks for what answers HTTP; it waits for the first replica, which says who judges."""
        from ray import serve

        identity: Identity = await self._replicas.about.remote()
        watchman = Watchman(serve.get_replica_context().app_name, JUDGE)
        info, how = identity.info, self._settings.judge
        retriever = RayRetriever(self._replicas, info.index_digest)

        def judge_of(judge_id: str) -> RayJudge:
            return RayJudge(
                self._replicas,
                retriever,
                judge_id,
                identity.calibrations[judge_id],
                seed=how.sampling.seed,
                deadline_s=how.limits.deadline_s,
                max_together=self._settings.serve.max_queue,  # none waits here, see `application`
                is_leaving=watchman.is_leaving,
            )

        return create_app(
            judge_of(info.judge_id),
            self._settings.serve,
            info,
            self._stores,
            coherence=judge_of(info.coherence_judge_id) if info.coherence_judge_id else None,
            retrieve=self._settings.retrieve,
            replicas=watchman.running,
        )


def application(
    load: Callable[[], tuple[Sequence[Judge], Info]], cluster: JudgeCluster, settings: Settings
) -> "Application":
    """The deployments of a judge's service, for `serve.run` or a Serve config file.

    Args:
        load: called in each replica: the judges on its engine, that of correctness first, and what the service says of them.
        cluster: how many, and where.
        settings: of the judge and the service.
    """
    from ray import serve

    at_once = settings.judge.max_sequences
    replicas = serve.deployment(JudgeReplica).options(
        name=JUDGE,
        ray_actor_options={"num_cpus": cluster.judge_cpus, "num_gpus": cluster.judge_gpus},
        # Whatever is admitted goes to a replica at once and waits for its engine there. Ray Serve lets replicas finish what they
        # have when it takes them away or updates them, but gives them nothing more, so that what waited here would be stranded.
        max_ongoing_requests=settings.serve.max_queue + _OTHER_REQUESTS,
        graceful_shutdown_timeout_s=settings.serve.drain_s,
        **_scaling(cluster, at_once),
        **_HEALTH,
    )
    ingress = serve.deployment(serve.ingress()(Ingress)).options(
        name=INGRESS,
        num_replicas=1,
        ray_actor_options={"num_cpus": cluster.ingress_cpus, "resources": cluster.ingress_resources},
        max_ongoing_requests=settings.serve.max_queue + _OTHER_REQUESTS,  # admission refuses what is too much
        graceful_shutdown_timeout_s=settings.serve.drain_s + 5,  # the last judgments are still to be sent
        **_HEALTH,
    )
    return ingress.bind(replicas.bind(load), settings=settings)


def _scaling(cluster: JudgeCluster, at_once: int) -> dict[str, Any]:
    if cluster.max_replicas is None:
        return {"num_replicas": cluster.replicas}
    return {
        "autoscaling_config": {
            "min_replicas": cluster.replicas,
            "max_replicas": cluster.max_replicas,
            "target_ongoing_requests": cluster.cases_per_replica or at_once,
            "upscale_delay_s": cluster.upscale_delay_s,
            "downscale_delay_s": cluster.downscale_delay_s,
        }
    }
