"""From the name of a retrieval profile to the ranker that does it."""

import hashlib
from pathlib import Path

from configs.settings import EXACT, Profile
from retrieval.bm25 import Bm25Ranker
from retrieval.compressed import CompressedIndex, read_recipe
from retrieval.encoder import Encoder
from retrieval.hybrid import HybridRanker
from retrieval.index import ExactIndex
from retrieval.manifest import Manifest
from retrieval.passage import EncoderError, IndexMismatchError
from retrieval.ranker import DenseRanker, Ranker
from retrieval.rerank import CrossEncoder, RerankRanker
from retrieval.shards import open_shards
from retrieval.textstore import TextStore

COMPRESSED_DEPTH = 32  # rows that a compressed copy is asked for, as the other profiles ask


def open_ranker(
    profile: Profile,
    folder: Path,
    manifest: Manifest,
    encoder: Encoder,
    texts: TextStore,
    *,
    cross_encoder: CrossEncoder | None = None,
    vectors: str = EXACT,
    backend: str = "auto",
    device: str = "auto",
    verify: bool = False,
) -> Ranker:
    """The ranker of a profile over the index in `folder`, whose files and encoder were checked against the manifest.

    dense: the nearest vectors. bm25: shared words. hybrid: these two, fused. rerank: dense, then ordered by `cross_encoder`.

    Args:
        texts: of the index; stays the caller's to close, and is read by `rerank` for as long as the ranker is used.
        vectors: exact, or the name of a compressed copy; `bm25` has no use for either.
        backend, device: what searches exact vectors, and where; as `ExactIndex`.
        verify: check the SHA-256 of the word index and of a compressed copy even if they are large.

    Raises:
        IndexMismatchError, IndexCorruptError: a part that the profile needs is absent, damaged or another index's.
        EncoderError: the profile needs a cross-encoder, and there is none.
        BackendError: the back end or the device is not there, or has too little memory.
    """
    if profile == "bm25":
        return Bm25Ranker.open(folder, manifest, verify=verify)
    if vectors == EXACT:
        norms = [part.longest for part in manifest.ranges]
        exact = ExactIndex(open_shards(folder, manifest), backend, device, norms=norms)
        dense = DenseRanker(encoder, exact, manifest.digest)
    else:
        copy = CompressedIndex.open(folder, vectors, manifest.digest, open_shards(folder, manifest), verify=verify)
        parts = f"dense depth={COMPRESSED_DEPTH} {manifest.digest} {read_recipe(folder, vectors).digest}"
        dense = DenseRanker(encoder, copy, hashlib.sha256(parts.encode()).hexdigest(), COMPRESSED_DEPTH)
    if encoder.encode_queries(["fever"]).shape != (1, manifest.encoder.dim):
        raise IndexMismatchError(
            f"{folder}: the encoder's vectors do not have the index's {manifest.encoder.dim} dimensions"
        )
    if profile == "hybrid":
        return HybridRanker([dense, Bm25Ranker.open(folder, manifest, verify=verify)])
    if profile == "rerank":
        if cross_encoder is None:
            raise EncoderError("the profile rerank needs a cross-encoder; name one with retrieval.cross_encoder")
        return RerankRanker(dense, cross_encoder, texts)
    return dense
