"""`medverify index eval`: how good the retrieval profiles are on a benchmark."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from configs.settings import EXACT
from medverify.cli.common import (
    ConfigOption,
    EncoderOption,
    SetOption,
    mended_by_user,
    out,
    quiet_libraries,
    settings_from,
    waiting,
)

if TYPE_CHECKING:
    from eval.beir import Benchmark
    from eval.profiles import ProfileReport


def evaluate(
    benchmark: Annotated[
        Path, typer.Argument(help="Folder in BEIR's layout: corpus.jsonl, queries.jsonl (or .gz) and qrels.tsv.")
    ],
    profiles: Annotated[
        list[str] | None,
        typer.Option(
            "--profile", help="dense, bm25, hybrid or rerank; may be given again. Default: as retrieval.profile."
        ),
    ] = None,
    encoder: EncoderOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Measure nDCG@10, recall@3 and MRR@10 of retrieval profiles, with 95 % intervals over queries, and queries a second.

    The corpus is indexed in the cache, once for each encoder, and compressed there if retrieval.vectors asks for it.
    """
    settings = settings_from(config, overrides).settings
    named = dict.fromkeys(profiles or [settings.retrieval.profile])
    every = [settings_from(config, [*(overrides or []), f"retrieval.profile={name}"]).settings for name in named]
    wanted = [chosen.retrieval.profile for chosen in every]
    with mended_by_user(), waiting("reading the benchmark") as status:
        quiet_libraries()
        from eval.beir import read_beir
        from eval.profiles import ensure_compressed, ensure_words, index_of, measure
        from medverify.assemble import load_cross_encoder, load_encoder
        from retrieval.profiles import open_ranker
        from retrieval.textstore import TextStore

        data = read_beir(benchmark)
        cross_encoder = load_cross_encoder(settings, status.update) if "rerank" in wanted else None
        model = load_encoder(settings, encoder or settings.retrieval.encoder, status.update)
        folder, manifest = index_of(
            data,
            model,
            settings.paths.cache / "benchmarks",
            lambda done: status.update(f"encoding {done.rows} of {done.total} documents"),
        )
        if {"bm25", "hybrid"} & set(wanted):
            status.update("adding the word index")
            ensure_words(folder, manifest)
        vectors = settings.retrieval.vectors
        if vectors != EXACT and set(wanted) != {"bm25"}:
            status.update(f"compressing to {vectors}")
            ensure_compressed(folder, manifest, vectors)
        reports = []
        with TextStore(folder) as texts:
            for profile in wanted:
                status.update(f"measuring {profile}")
                ranker = open_ranker(
                    profile,
                    folder,
                    manifest,
                    model,
                    texts,
                    cross_encoder=cross_encoder,
                    vectors=vectors,
                    backend=settings.retrieval.search_backend,
                    device=settings.retrieval.vectors_device,
                )
                reports.append(measure(ranker, data, texts))
    if as_json:
        about = {"benchmark": data.name, "documents": manifest.rows, "queries": len(data.queries)}
        about |= {"unanswerable": data.unanswerable, "merged": data.merged, "blank": data.blank}
        about |= {"encoder": manifest.encoder.name, "vectors": vectors}
        print(json.dumps(about | {"profiles": [dataclasses.asdict(report) for report in reports]}))  # noqa: T201
        return
    _show(data, manifest.rows, f"{manifest.encoder.name}, vectors {vectors}", reports)


def _show(data: "Benchmark", rows: int, encoder: str, reports: list["ProfileReport"]) -> None:
    table = Table("profile", "nDCG@10", "recall@3", "MRR@10", "queries/s", header_style="bold")
    for report in reports:
        figures = (report.ndcg_at_10, report.recall_at_3, report.mrr_at_10)
        cells = [f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]" for figure in figures]
        table.add_row(report.profile, *cells, f"{report.queries_per_second:.0f}")
        if report.nothing_found:
            table.caption = f"{table.caption or ''} {report.profile}: nothing found for {report.nothing_found} queries."
    out.print(table)
    out.print(
        f"{data.name}: {len(data.queries)} queries, {rows} documents ({data.merged} more have the text of one of these, "
        f"{data.blank} are blank); "
        f"{data.unanswerable} queries without a relevant document are left out. Relevant: grade 1 and above; gain: the grade. "
        f"Encoder of dense, hybrid and rerank: {encoder}. Intervals from 1,000 draws of queries; queries in batches of 32.",
        highlight=False,
    )
