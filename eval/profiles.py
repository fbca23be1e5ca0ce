"""How good and how fast a retrieval profile is on a benchmark."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eval.beir import Benchmark
from eval.metrics import Estimate
from eval.ranking import mean, ndcg, recall, reciprocal_rank
from retrieval.bm25 import Bm25Ranker, add_bm25
from retrieval.build import build_index
from retrieval.clean import KEEP_ALL, Cleaner
from retrieval.compress import compress
from retrieval.compressed import CompressedIndex
from retrieval.encoder import Encoder
from retrieval.manifest import MANIFEST_FILE, Manifest
from retrieval.passage import IndexCorruptError, IndexMismatchError, UnfinishedError
from retrieval.progress import Progress
from retrieval.ranker import Ranker
from retrieval.shards import open_shards
from retrieval.textstore import TextStore, passage_line

DEPTH = 10  # rows asked for; what is deeper counts in none of the figures
_BATCH = 32


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """What was measured of one profile, as means over queries."""

    profile: str
    ndcg_at_10: Estimate
    recall_at_3: Estimate
    mrr_at_10: Estimate
    queries_per_second: float
    nothing_found: int  # queries for which the profile found no document at all


def index_of(
    benchmark: Benchmark, encoder: Encoder, folder: Path, on_progress: Callable[[Progress], None] | None = None
) -> tuple[Path, Manifest]:
    """The index of the benchmark's documents below `folder`, built unless the same documents and encoder were indexed before."""
    identity = hashlib.sha256(encoder.spec.model_dump_json().encode())
    for document in benchmark.documents:
        identity.update(passage_line(document))
    target = folder / identity.hexdigest()[:32]
    if (target / MANIFEST_FILE).is_file():
        try:
            manifest = Manifest.load(target)
            manifest.check_files(target)
            manifest.check_encoder(encoder.spec)
            return target, manifest
        except (IndexCorruptError, IndexMismatchError):
            pass  # damaged, or of another release: it is ours to build again

    def build(fresh: bool) -> Manifest:
        return build_index(
            benchmark.documents,
            encoder,
            target,
            cleaner=Cleaner(KEEP_ALL),
            overwrite=True,
            fresh=fresh,
            on_progress=on_progress,
        )

    try:
        return target, build(fresh=False)
    except UnfinishedError:  # of another release, or encoded in other batches
        return target, build(fresh=True)


def ensure_words(folder: Path, manifest: Manifest) -> None:
    """See that the index has a word index that fits it."""
    try:
        Bm25Ranker.open(folder, manifest)
    except (IndexMismatchError, IndexCorruptError):
        add_bm25(folder)


def ensure_compressed(folder: Path, manifest: Manifest, name: str) -> None:
    """See that the index has the compressed copy `name`, and that it fits it."""
    shards = open_shards(folder, manifest)
    try:
        CompressedIndex.open(folder, name, manifest.digest, shards)
    except (IndexMismatchError, IndexCorruptError):
        compress(folder, manifest.digest, shards, name)


def measure(ranker: Ranker, benchmark: Benchmark, texts: TextStore) -> ProfileReport:
    """Ask all queries, in batches of 32, and compare what was found with the judgments.

    Loading models is not part of the time: one query is asked before the clock starts.

    Args:
        texts: of the index that is searched.
    """
    ids, queries = list(benchmark.queries), list(benchmark.queries.values())
    ranker.rank(queries[:1], DEPTH)
    start = time.perf_counter()
    rankings = [
        ranking for at in range(0, len(queries), _BATCH) for ranking in ranker.rank(queries[at : at + _BATCH], DEPTH)
    ]
    seconds = time.perf_counter() - start
    found = [[texts.get(row).id for row in ranking.rows.tolist()] for ranking in rankings]
    judged = [(documents, benchmark.grades[query]) for query, documents in zip(ids, found, strict=True)]
    return ProfileReport(
        profile=ranker.profile,
        ndcg_at_10=mean([ndcg(documents, grades, 10) for documents, grades in judged]),
        recall_at_3=mean([recall(documents, grades, 3) for documents, grades in judged]),
        mrr_at_10=mean([reciprocal_rank(documents, grades) for documents, grades in judged]),
        queries_per_second=len(queries) / seconds,
        nothing_found=sum(not documents for documents in found),
    )
