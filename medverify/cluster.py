"""What a Ray Serve config file names: applications put together from settings."""

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from configs.load import load_settings
from configs.settings import EXACT
from medverify import __version__
from medverify.assemble import load_encoder
from retrieval.passage import BackendError
from serve.ray_retrieval import Cluster, application

if TYPE_CHECKING:
    from ray.serve import Application


class RetrievalArguments(Cluster):
    """The `args` of the application in a Serve config file."""

    config: Annotated[str | None, Field(description="Settings file: a shipped name or a path.")] = None
    set: Annotated[tuple[str, ...], Field(description="Settings, such as retrieval.index=/data/index.")] = ()


def retrieval(args: RetrievalArguments) -> "Application":
    """Retrieval over row ranges. Settings are read once, here, and the same on every machine.

    Raises:
        BackendError: the settings ask for more than the nearest exact vectors.
    """
    settings = load_settings(args.config, os.environ, args.set).settings
    how = settings.retrieval
    if (how.profile, how.vectors) != ("dense", EXACT):
        raise BackendError(
            f"a cluster searches with retrieval.profile dense and retrieval.vectors {EXACT}, asked for were {how.profile} and "
            f"{how.vectors}; use `medverify retrieve serve` for these"
        )
    return application(
        settings.index_folder,
        partial(load_encoder, settings, settings.retrieval.encoder, _quietly),
        args,
        settings.retrieve,
        __version__,
        verify=how.verify,
    )


def _quietly(_: str) -> None:
    """Nobody watches a replica start."""
