"""From a training config to its pool: read the sources, take out what is in evaluation packs, mix the rest."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curriculum.pool.example import Example
from curriculum.pool.overlap import PackOverlap, check_overlap
from curriculum.pool.pool import Counts, Pool
from curriculum.pool.settings import PoolSettings, Source
from curriculum.pool.sources.base import SourceRows
from curriculum.pool.sources.jsonl import JsonlSource, read_jsonl_source
from curriculum.pool.sources.medprm import MedPrmSource, read_medprm_source
from curriculum.pool.sources.pack import PackSource, read_pack_source


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What became of one source."""

    licence: str
    provenance: str
    read: int  # labelled traces
    unlabelled: int  # others; they are left out
    overlapping: int  # left out: they are in an evaluation pack
    generators: Mapping[str, int]  # who wrote the traces that were read
    counts: Counts  # of what is left
    share: float  # of the draws, for as long as all sources last


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What a pool is made of."""

    sources: Mapping[str, SourceReport]
    packs: Sequence[PackOverlap]
    drawable: int  # examples that can be drawn in all
    digest: str  # of all that decides what is drawn


@dataclass(frozen=True, slots=True)
class LoadedPool:
    """A pool, and where it came from."""

    pool: Pool
    report: PoolReport


def load_pool(settings: PoolSettings) -> LoadedPool:
    """Read, clean and mix all sources. Nothing is written.

    Raises:
        PoolError: a source or pack cannot be read, or a source is an evaluation pack.
    """
    rows = {name: _read(source, name) for name, source in settings.sources.items()}
    examples: Sequence[Example] = [example for one in rows.values() for example in one.examples]
    overlap = check_overlap(examples, settings.overlap.packs, settings.overlap.threshold)
    pool = Pool(overlap.kept, settings.seed, weights=settings.weights, per_question=settings.per_question)
    counts = {name: pool.counts().get(name, Counts()) for name in settings.sources}
    weights: dict[str, float] = {name: one.drawable for name, one in counts.items()}
    if settings.weights is not None:
        weights = {name: settings.weights[name] if weights[name] else 0 for name in weights}
    total = sum(weights.values()) or 1
    sources = {
        name: SourceReport(
            licence=source.licence,
            provenance=source.provenance,
            read=len(rows[name].examples),
            unlabelled=rows[name].unlabelled,
            overlapping=overlap.removed[name],
            generators=dict(sorted(Counter(example.generator for example in rows[name].examples).items())),
            counts=counts[name],
            share=weights[name] / total,
        )
        for name, source in settings.sources.items()
    }
    return LoadedPool(pool, PoolReport(sources, overlap.packs, pool.left, pool.state()["digest"]))


def _read(source: Source, name: str) -> SourceRows:
    match source:
        case PackSource():
            return read_pack_source(source, name)
        case JsonlSource():
            return read_jsonl_source(source, name)
        case MedPrmSource():
            return read_medprm_source(source, name)
