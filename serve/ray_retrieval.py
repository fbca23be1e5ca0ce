"""Retrieval on more than one machine, with Ray Serve: shards hold rows, mergers encode, ask all of them and read the texts.

A merger is the retrieval service of one machine with another index behind it: a `ShardedIndex` whose shards are deployments.
Every range of rows is a deployment of its own, so that Ray Serve places, restarts and scales it by itself. This module imports
no Ray before `application` is called: the classes are plain ones, and what they do can be read and tested without a cluster.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from configs.settings import RetrieveSettings
from retrieval.encoder import Encoder, Vectors
from retrieval.index import ExactIndex
from retrieval.local import LocalRetriever
from retrieval.manifest import ALWAYS_VERIFIED_BYTES, Manifest
from retrieval.passage import IndexCorruptError, IndexMismatchError, RetrievalError
from retrieval.ranker import DenseRanker
from retrieval.sharded import Claim, Found, ShardedIndex, Span, spans
from retrieval.shards import open_rows
from retrieval.textstore import OFFSETS_FILE, PASSAGES_FILE, TextStore
from serve.retrieval import create_retrieval_app
from serve.retrieval_schemas import RetrievalInfo

if TYPE_CHECKING:
    from ray.serve import Application
    from ray.serve.handle import DeploymentHandle, DeploymentResponse


class Cluster(BaseModel):
    """How an index is spread over a cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shards: Annotated[
        int, Field(ge=1, description="Ranges of rows; each is a deployment, ShardSearch-0 and so on.")
    ] = 1
    shard_replicas: Annotated[int, Field(ge=1, description="Replicas of each range.")] = 1
    shard_cpus: Annotated[float, Field(ge=0, description="CPUs that Ray reserves for a replica of a range.")] = 1
    shard_gpus: Annotated[float, Field(ge=0, description="GPUs that Ray reserves for a replica of a range.")] = 0
    shard_backend: Annotated[str, Field(description="What searches a range: auto, faiss or torch.")] = "auto"
    shard_device: Annotated[str, Field(description="auto, cpu, cuda or cuda:N; where the vectors of a range are.")] = (
        "auto"
    )
    mergers: Annotated[int, Field(ge=1, description="Replicas that encode and merge.")] = 1
    merger_cpus: Annotated[float, Field(ge=0, description="CPUs that Ray reserves for a merger.")] = 1
    merger_gpus: Annotated[float, Field(ge=0, description="GPUs that Ray reserves for a merger's encoder.")] = 0
    shard_deadline_s: Annotated[float, Field(gt=0, description="How long a search waits for its slowest range.")] = 5.0


class ShardSearch:
    """A deployment that holds one range of rows."""

    def __init__(
        self, folder: Path, claim: Claim, backend: str = "auto", device: str = "auto", *, verify: bool = False
    ) -> None:
        """Map the vectors of the range; on a GPU, copy them there.

        The sizes of its files are always checked; their SHA-256 if `verify`, or if they are small.

        Raises:
            IndexMismatchError: the folder on this machine holds another index than the mergers search.
            IndexCorruptError: a file of the range is missing or damaged.
            BackendError: the back end or the device is not there, or has too little memory.
        """
        manifest = _manifest(folder, claim.digest)
        self._claim = claim
        self._folder = folder
        parts = manifest.overlapping(*claim.span)
        vectors = open_rows(
            folder, manifest, *claim.span, verify=verify or _small(manifest, [part.file for part in parts])
        )
        norms = [part.longest for part in parts]
        self._index = ExactIndex(vectors, backend, device, norms=norms)
        _manifest(folder, claim.digest)  # still the index whose files these are
        # The first search loads the back end and reads all rows: before this replica is asked, not while somebody waits.
        self._index.search(np.asarray(vectors[0][:1], dtype=np.float32), 1)
        # One thread owns the index. Calls wait for it off the event loop, which goes on answering health checks.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="search")

    async def search(self, claim: Claim, vectors: Vectors, k: int) -> Found:
        """Scores float32 [q, k'] and rows int64 [q, k'] of the whole index, k' = min(k, rows of the range).

        Raises:
            IndexMismatchError: this is not the range, or not the index, that the caller means.
        """
        if claim != self._claim:
            raise IndexMismatchError(f"this shard holds {self._claim}, asked was for {claim}")
        loop = asyncio.get_running_loop()
        scores, rows = await loop.run_in_executor(self._worker, self._index.search, vectors, k)
        return scores, rows + claim.span.start

    def check_health(self) -> None:
        """Ray Serve asks this now and then, and replaces a replica whose index was changed or taken away under it."""
        _manifest(self._folder, self._claim.digest)


class RayShard:
    """One range of rows, reached through the handle of its deployment."""

    def __init__(self, handle: "DeploymentHandle[Any]", replicas: int) -> None:
        self._handle = handle
        self.replicas = replicas

    def submit(self, claim: Claim, vectors: Vectors, k: int) -> "RayAnswer":
        """Start a search in one of the replicas."""
        return RayAnswer(self._handle.search.remote(claim, vectors, k))


class RayAnswer:
    """A search under way in a replica."""

    def __init__(self, response: "DeploymentResponse[Any]") -> None:
        self._response = response

    def result(self, timeout_s: float) -> Found:
        """Wait for the answer.

        Raises:
            TimeoutError: not there yet.
            RetrievalError: the replica's own error, or the loss of the replica.
        """
        from ray.exceptions import RayActorError, RayTaskError

        try:
            return self._response.result(timeout_s=timeout_s)  # type: ignore[no-any-return]
        except RayTaskError as error:
            if isinstance(error.cause, RetrievalError):
                raise error.cause from None  # as it was raised there, without Ray's copy of the traceback
            raise RetrievalError(f"the shard failed: {error.cause!r}") from error
        except RayActorError as error:
            raise RetrievalError("the replica is gone; Ray Serve starts another") from error


class Merger:
    """The deployment that callers reach: the retrieval service, over all shards."""

    def __init__(
        self,
        folder: Path,
        digest: str,
        shards: Sequence[tuple[Span, "DeploymentHandle[Any]"]],
        *,
        load_encoder: Callable[[], Encoder],
        cluster: Cluster,
        settings: RetrieveSettings,
        version: str,
        verify: bool = False,
    ) -> None:
        """Load the encoder and open the texts; `verify` is that of `ShardSearch`.

        Raises:
            IndexMismatchError: the folder on this machine holds another index than the shards, or the encoder is not the one
                that built it.
            IndexCorruptError: a file of the texts is missing or damaged.
        """
        manifest = _manifest(folder, digest)
        encoder = load_encoder()
        manifest.check_encoder(encoder.spec)
        encoder.encode_queries(["fever"])  # loads the model before anybody waits for it
        texts = open_texts(folder, manifest, verify=verify)
        reached = [(span, RayShard(handle, cluster.shard_replicas)) for span, handle in shards]
        index = ShardedIndex(digest, reached, manifest.encoder.dim, cluster.shard_deadline_s)
        self._retriever = LocalRetriever(
            DenseRanker(encoder, index, digest),
            texts,
            manifest,
            max_waiting=settings.max_waiting,
            max_batch=settings.max_batch,
            cached_hits=settings.cached_hits,
        )
        self._app = create_retrieval_app(self._retriever, settings, RetrievalInfo.of(self._retriever, version))

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Ray Serve asks for what answers HTTP once the replica is made."""
        return self._app


def application(
    folder: Path,
    load_encoder: Callable[[], Encoder],
    cluster: Cluster,
    settings: RetrieveSettings,
    version: str,
    *,
    verify: bool = False,
) -> "Application":
    """The deployments of an index, for `serve.run` or a Serve config file.

    Args:
        folder: of the index, at the same place on every machine. A shard reads the manifest and the vector files of its rows,
            a merger the manifest and the texts; other files need not be there.
        load_encoder: called in each merger.
        verify: check every byte of what is opened, also of large files.

    Raises:
        RetrievalError: the manifest cannot be read here.
        ValueError: more shards than rows.
    """
    from ray import serve

    manifest = Manifest.load(folder)
    digest = manifest.digest
    shards = []
    for number, span in enumerate(spans(manifest.rows, cluster.shards)):
        shard = serve.deployment(ShardSearch).options(
            name=f"ShardSearch-{number}",
            num_replicas=cluster.shard_replicas,
            ray_actor_options={"num_cpus": cluster.shard_cpus, "num_gpus": cluster.shard_gpus},
            **_HEALTH,
        )
        claim = Claim(digest, span)
        bound = shard.bind(folder, claim, cluster.shard_backend, cluster.shard_device, verify=verify)
        shards.append((span, bound))
    merger = serve.deployment(serve.ingress()(Merger)).options(
        name="Merger",
        num_replicas=cluster.mergers,
        ray_actor_options={"num_cpus": cluster.merger_cpus, "num_gpus": cluster.merger_gpus},
        max_ongoing_requests=settings.max_waiting,  # beyond it the retriever's own queue would refuse
        **_HEALTH,
    )
    return merger.bind(
        folder,
        digest,
        shards,
        load_encoder=load_encoder,
        cluster=cluster,
        settings=settings,
        version=version,
        verify=verify,
    )


# A replica that does not answer for so long is replaced. The process's death is seen at once.
_HEALTH = {"health_check_period_s": 5, "health_check_timeout_s": 15}


def open_texts(folder: Path, manifest: Manifest, *, verify: bool = False) -> TextStore:
    """Open the texts of an index whose vectors may be elsewhere, once they are the manifest's; `verify` as for `ShardSearch`.

    Raises:
        IndexMismatchError: the index was replaced meanwhile.
        IndexCorruptError: a file is missing, or is not what the manifest says.
    """
    names = (PASSAGES_FILE, OFFSETS_FILE)
    for name in names:
        manifest.check_file(folder, name, hashed=verify or _small(manifest, names))
    texts = TextStore(folder)
    try:
        if len(texts) != manifest.rows:
            raise IndexCorruptError(f"{folder}: {len(texts)} passages and {manifest.rows} rows; rebuild the index")
        _manifest(folder, manifest.digest)
    except BaseException:
        texts.close()
        raise
    return texts


def _small(manifest: Manifest, names: Sequence[str]) -> bool:
    """Whether files are hashed whenever they are opened, as those of a small index in one process are."""
    return sum(manifest.files[name].size for name in names) < ALWAYS_VERIFIED_BYTES


def _manifest(folder: Path, digest: str) -> Manifest:
    manifest = Manifest.load(folder)
    if manifest.digest != digest:
        raise IndexMismatchError(
            f"{folder}: manifest.digest: this machine has {manifest.digest}, the application was started for {digest}; "
            "copy the index again, or deploy again"
        )
    return manifest
