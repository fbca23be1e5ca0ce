"""What a Ray Serve config file names: applications put together from settings."""

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from configs.load import load_settings
from configs.settings import EXACT, Settings
from medverify import __version__
from medverify.about import info_of
from medverify.assemble import load_encoder, load_judge
from retrieval.passage import BackendError
from serve import ray_retrieval, ray_service
from serve.schemas import Info
from verifier.coherence import coherence_judge
from verifier.judge import Judge

if TYPE_CHECKING:
    from ray.serve import Application


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
    return ray_service.application(partial(_load_judge, settings), args, settings)


def _load_judge(settings: Settings) -> tuple[Sequence[Judge], Info]:
    judge = load_judge(settings)
    coherence = coherence_judge(judge)
    return [judge, coherence], info_of(judge, settings, coherence)


def _quietly(_: str) -> None:
    """Nobody watches a replica start."""
