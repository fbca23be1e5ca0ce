"""From the name of a retrieval profile to the ranker that does it."""

from pathlib import Path

from configs.settings import Profile
from retrieval.bm25 import Bm25Ranker
from retrieval.encoder import Encoder
from retrieval.hybrid import HybridRanker
from retrieval.index import ExactIndex
from retrieval.manifest import Manifest
from retrieval.passage import EncoderError, IndexMismatchError
from retrieval.ranker import DenseRanker, Ranker
from retrieval.rerank import CrossEncoder, RerankRanker
from retrieval.shards import open_shards
from retrieval.textstore import TextStore


def open_ranker(
    profile: Profile,
    folder: Path,
    manifest: Manifest,
    encoder: Encoder,
    texts: TextStore,
    *,
    cross_encoder: CrossEncoder | None = None,
    verify: bool = False,
) -> Ranker:
    """The ranker of a profile over the index in `folder`, whose files and encoder were checked against the manifest.

    dense: the nearest vectors. bm25: shared words. hybrid: these two, fused. rerank: dense, then ordered by `cross_encoder`.

    Args:
        texts: of the index; stays the caller's to close, and is read by `rerank` for as long as the ranker is used.

    Raises:
        IndexMismatchError, IndexCorruptError: a part that the profile needs is absent, damaged or another index's.
        EncoderError: the profile needs a cross-encoder, and there is none.
    """
    if profile == "bm25":
        return Bm25Ranker.open(folder, manifest, verify=verify)
    dense = _dense(folder, manifest, encoder)
    if profile == "hybrid":
        return HybridRanker([dense, Bm25Ranker.open(folder, manifest, verify=verify)])
    if profile == "rerank":
        if cross_encoder is None:
            raise EncoderError("the profile rerank needs a cross-encoder; name one with retrieval.cross_encoder")
        return RerankRanker(dense, cross_encoder, texts)
    return dense


def _dense(folder: Path, manifest: Manifest, encoder: Encoder) -> DenseRanker:
    index = ExactIndex(open_shards(folder, manifest), norms=[part.longest for part in manifest.ranges])
    if encoder.encode_queries(["fever"]).shape != (1, index.dim):
        raise IndexMismatchError(f"{folder}: the encoder's vectors do not have the index's {index.dim} dimensions")
    return DenseRanker(encoder, index, manifest.digest)
