"""What a Ray Serve config file names: applications put together from settings."""

import logging
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from configs.load import load_settings
from configs.settings import EXACT, Settings
from medverify import __version__
from medverify.about import info_of
from medverify.assemble import load_encoder, load_judge
from retrieval.passage import BackendError, UnavailableError
from retrieval.told import NotToldError, told
from serve import ray_retrieval, ray_service
from serve.logs import write_log
from serve.schemas import Info
from verifier.coherence import coherence_judge
from verifier.judge import Judge

if TYPE_CHECKING:
    from ray.serve import Application


logger = logging.getLogger(__name__)

_LOOK_S = 5.0  # between two looks at an index that does not answer yet


class _Named(BaseModel):
    """Where the settings of an application come from."""

    config: Annotated[str | None, Field(description="Settings file: a shipped name or a path.")] = None
    set: Annotated[tuple[str, ...], Field(description="Settings, such as retrieval.index=/data/index.")] = ()

    def settings(self) -> Settings:
        """Read once, where the application is built, and the same on every machine."""
        return load_settings(self.config, os.environ, self.set).settings


class RetrievalArguments(_Named, ray_retrieval.Cluster):
    """The `args` of the application in a Serve config file."""


class JudgeArguments(_Named, ray_service.JudgeCluster):
    """The `args` of the application in a Serve config file."""

    index_wait_s: Annotated[
        float, Field(ge=0, description="How long a judge waits for its index to answer before it fails to start.")
    ] = 1800.0


def retrieval(args: RetrievalArguments) -> "Application":
    """Retrieval over row ranges.

    Raises:
        BackendError: the settings ask for more than the nearest exact vectors.
    """
    settings = args.settings()
    how = settings.retrieval
    if (how.profile, how.vectors) != ("dense", EXACT):
        raise BackendError(
            f"a cluster searches with retrieval.profile dense and retrieval.vectors {EXACT}, asked for were {how.profile} and "
            f"{how.vectors}; use `medverify retrieve serve` for these"
        )
    return ray_retrieval.application(
        settings.index_folder,
        partial(load_encoder, settings, settings.retrieval.encoder, _quietly),
        args,
        settings.retrieve,
        __version__,
        verify=how.verify,
    )


def judge(args: JudgeArguments) -> "Application":
    """The judge's service, with judges in replicas."""
    settings = args.settings()
    return ray_service.application(partial(_load_judge, settings, args.index_wait_s), args, settings)


def _load_judge(settings: Settings, index_wait_s: float) -> tuple[Sequence[Judge], Info]:
    write_log(settings.serve.log)
    if settings.retrieval.index.startswith(("http://", "https://")):
        _wait_for_index(settings.retrieval.index, index_wait_s, settings.judge.limits.search_timeout_s)
    judge = load_judge(settings)
    coherence = coherence_judge(judge)
    return [judge, coherence], info_of(judge, settings, coherence)


def _wait_for_index(url: str, wait_s: float, timeout_s: float) -> None:
    """Wait until an index elsewhere answers: it may be deployed together with the judges, and takes as long as its rows do.

    Ray Serve gives up an application whose replicas fail to start some times, so that they must not fail for this. Any answer
    may be another one soon: while the index has no route yet, its address is the judges' own.

    Args:
        url: of the index.
        wait_s: for all of this.
        timeout_s: for each time that it is asked.

    Raises:
        UnavailableError: it did not answer in time.
    """
    ends, said = time.monotonic() + wait_s, ""
    while True:
        try:
            told(url, "digest", timeout_s=timeout_s, retries=0)
            return
        except NotToldError as error:
            if time.monotonic() >= ends:
                raise UnavailableError(f"{error}; waited {wait_s:g} s for it") from error
            if str(error) != said:
                said = str(error)
                logger.warning("waiting for the index, %g s at most: %s", ends - time.monotonic(), said)
        time.sleep(_LOOK_S)


def _quietly(_: str) -> None:
    """Nobody watches a replica start."""
