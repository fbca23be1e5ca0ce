"""`medverify index …` and `medverify search`: the index by hand."""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import filesize
from rich.markup import escape
from rich.table import Table

from medverify.cli.common import (
    ConfigOption,
    JsonOption,
    SetOption,
    err,
    mended_by_user,
    out,
    quiet_libraries,
    settings_from,
    waiting,
)
from medverify.cli.progress import EncodingProgress, bytes_progress
from medverify.cli.render import plain
from retrieval.passage import Hit, Retriever

if TYPE_CHECKING:
    from retrieval.compressed import Recipe
    from retrieval.encoder import Encoder
    from retrieval.manifest import Manifest, Parity

DAMAGED = 1  # exit code

StoredType = Literal["float32", "float16"]
EncoderOption = Annotated[str | None, typer.Option(help="Encoder: a name from `medverify models`, or a folder.")]
FolderArgument = Annotated[Path, typer.Argument(help="Folder of the index.")]


def build(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the new index.")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="What to index, in this order: starter; open-medicine; .jsonl or .jsonl.gz files (id, title, text); or "
            "KIND:PLACE, such as medrag-pubmed:FOLDER, medrag-textbooks:hub@COMMIT, pubmed-xml:FOLDER, ncbi-medcpt:FOLDER."
        ),
    ] = None,
    encoder: EncoderOption = None,
    min_characters: Annotated[
        int, typer.Option(min=0, help="Leave out shorter texts: headings and captions cut off from their text.")
    ] = 120,
    any_language: Annotated[
        bool, typer.Option("--any-language", help="Keep texts in other languages than English.")
    ] = False,
    keep_retracted: Annotated[
        bool, typer.Option("--keep-retracted", help="Keep what is flagged as retracted or withdrawn.")
    ] = False,
    near_duplicates: Annotated[
        bool,
        typer.Option("--drop-near-duplicates", help="Leave out texts that nearly repeat an earlier one (MinHash)."),
    ] = False,
    ready_vectors: Annotated[
        bool,
        typer.Option(
            "--ready-vectors",
            help="Take the vectors that come with ncbi-medcpt:FOLDER, once a sample is shown to be the encoder's.",
        ),
    ] = False,
    dtype: Annotated[
        StoredType, typer.Option(help="How vectors are stored; float16 halves disk and memory.")
    ] = "float32",
    shard_rows: Annotated[
        int, typer.Option(min=1, help="Passages per vector file: what an interrupted build computes again at most.")
    ] = 20_000,
    rank: Annotated[
        int,
        typer.Option(min=0, envvar="RANK", help="Which of several processes this is, from 0; each takes its shards."),
    ] = 0,
    world: Annotated[int, typer.Option(min=1, envvar="WORLD_SIZE", help="How many processes build together.")] = 1,
    finish: Annotated[bool, typer.Option("--finish", help="Encode nothing: put a completed build in place.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew: discard what an interrupted build left.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an index that is there already.")] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Build an index: clean the passages, encode them, and put the folder in place when all of it is there.

    A build that is interrupted or killed goes on when the same command is given again, and ends with the same bytes. Until it
    has ended, what was there before stays. Point a judge at the result with --set retrieval.index=FOLDER.

    Several GPUs: start the same command once for each, with --rank 0 --world 4 and so on, or under torchrun. The folder
    must be one that all of them see; who is done last puts the index in place.
    """
    if not sources and not finish:
        raise typer.BadParameter("name at least one source, such as starter", param_hint="SOURCES")
    if fresh and world > 1:
        raise typer.BadParameter("several ranks cannot start anew together: remove the folder of the unfinished build")
    if ready_vectors and (finish or world > 1 or [name.partition(":")[0] for name in sources or ()] != ["ncbi-medcpt"]):
        raise typer.BadParameter(
            "only one process, with just the source ncbi-medcpt:FOLDER", param_hint="--ready-vectors"
        )
    compared = ["retrieval.precision=float32"] if ready_vectors else []  # with vectors that were computed so
    settings = settings_from(config, [*(overrides or []), *compared]).settings
    with mended_by_user():
        if finish:
            from retrieval.build import finish_index

            _show_built(output, finish_index(output, overwrite=overwrite))
            return
        with waiting("starting") as status:
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # one thread could not keep a GPU busy
            quiet_libraries()
            from medverify.assemble import load_encoder
            from retrieval.build import build_index, build_rank
            from retrieval.clean import Cleaner, CleaningOptions
            from retrieval.encoder import use_gpu_of
            from retrieval.sources import read

            if world > 1:
                use_gpu_of(rank)
            model = load_encoder(settings, encoder or settings.retrieval.encoder, status.update)
        cleaning = CleaningOptions(
            min_characters=min_characters,
            english_only=not any_language,
            drop_flags=() if keep_retracted else ("retracted", "withdrawn"),
            near_duplicates=near_duplicates,
        )
        cleaner = Cleaner(cleaning)
        if sources and ready_vectors:
            folder = Path(sources[0].partition(":")[2])
            how = {"cleaner": cleaner, "dtype": dtype, "shard_rows": shard_rows, "overwrite": overwrite}
            _show_built(output, _index_ready_vectors(folder, model, output, how))
            return
        passages = (passage for source in sources or () for passage in read(source))
        with EncodingProgress() as progress:
            manifest: Manifest | None
            if world == 1:
                manifest = build_index(
                    passages,
                    model,
                    output,
                    cleaner=cleaner,
                    dtype=dtype,
                    shard_rows=shard_rows,
                    overwrite=overwrite,
                    fresh=fresh,
                    on_progress=progress.update,
                )
            else:
                manifest = build_rank(
                    passages,
                    model,
                    output,
                    rank,
                    world,
                    cleaner=cleaner,
                    dtype=dtype,
                    shard_rows=shard_rows,
                    overwrite=overwrite,
                    on_progress=progress.update,
                )
    if manifest is None:
        out.print(f"rank {rank} of {world} is done; other ranks are not, and the last of them puts {output} in place")
    else:
        _show_built(output, manifest)


def _index_ready_vectors(folder: Path, encoder: "Encoder", output: Path, how: dict[str, Any]) -> "Manifest":
    from retrieval.ready_vectors import build_from_vectors
    from retrieval.sources.ncbi_medcpt import NcbiMedcptChunks, prove_parity

    chunks = NcbiMedcptChunks(folder)
    with waiting("encoding a sample") as status:
        parity = prove_parity(chunks, encoder)
        status.update(f"writing {output}")
        manifest = build_from_vectors(chunks.blocks(), encoder.spec, output, parity=parity, **how)
    out.print(_told(parity), highlight=False)
    return manifest


def _show_built(folder: Path, manifest: "Manifest") -> None:
    dropped = ", ".join(f"{count} {reason}" for reason, count in manifest.dropped.items() if count)
    left_out = f" (left out: {dropped})" if dropped else ""
    out.print(f"{folder}: {manifest.rows} passages{left_out}", highlight=False, markup=False)
    out.print(f"digest {manifest.digest}", highlight=False)


def info(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Tell what an index holds: corpora, what was left out, encoder, vectors, compressed copies with their recall, digest.

    Reads only the manifest and how copies were made.
    """
    with mended_by_user():
        from retrieval.compressed import read_recipes
        from retrieval.manifest import Manifest

        manifest, copies = Manifest.load(folder), read_recipes(folder)
    if as_json:
        record = {"digest": manifest.digest, **manifest.model_dump(mode="json")}
        record["compressed"] = [copy.model_dump(mode="json") for copy in copies]
        print(json.dumps(record, ensure_ascii=False, indent=1))  # noqa: T201 - for programs
        return
    encoder, arithmetic = manifest.encoder, manifest.arithmetic
    models = {
        encoder.query_model.name: encoder.query_model.digest,
        encoder.passage_model.name: encoder.passage_model.digest,
    }
    vectors = [entry.size for name, entry in manifest.files.items() if name.startswith("vectors/")]
    texts = sum(entry.size for entry in manifest.files.values()) - sum(vectors)
    how = (
        "given ready"
        if arithmetic is None
        else "{device}, {precision}, batches of {batch_size}".format(**arithmetic.model_dump())
    )
    table = Table(show_header=False, box=None)
    for name, value in (
        ("passages", f"{manifest.rows:,} of {manifest.corpus.passages:,}"),
        ("corpora", ", ".join(f"{name or '(no name)'} {count:,}" for name, count in manifest.corpus.counts.items())),
        ("left out", ", ".join(f"{count:,} {reason}" for reason, count in manifest.dropped.items()) or "nothing"),
        ("cleaning", json.dumps(manifest.cleaning, ensure_ascii=False)),
        (
            "encoder",
            f"{encoder.name}: {encoder.pooling} pooling, {'unit length' if encoder.normalize else 'any length'}, "
            f"queries of {encoder.query_max_tokens} and passages of {encoder.passage_max_tokens} tokens",
        ),
        ("models", "\n".join(f"{name} {digest[:12]}" for name, digest in models.items())),
        (
            "vectors",
            f"{encoder.dim} x {manifest.dtype} in {len(vectors)} files, {filesize.decimal(sum(vectors))}; {how}",
        ),
        ("parity", _told(manifest.parity) if manifest.parity else ""),
        ("compressed", "\n".join(map(_compressed, copies))),
        ("texts", filesize.decimal(texts)),
        ("built by", manifest.created_by),
        ("digest", manifest.digest),
    ):
        if value:
            table.add_row(name, escape(plain(value)))
    out.print(table, highlight=False)


def _told(parity: "Parity") -> str:
    return (
        f"{len(parity.ids)} passages encoded again: lowest cosine {parity.min_cosine:.6f}, greatest difference "
        f"{parity.max_difference:.1e}"
    )


def _compressed(copy: "Recipe") -> str:
    return (
        f"{copy.profile}: {filesize.decimal(copy.file.size)}, recall@3 {copy.recall.at_3:.3f}, recall@10 "
        f"{copy.recall.at_10:.3f} over {copy.recall.queries} passages"
    )


def verify(
    folder: FolderArgument,
    sample: Annotated[int, typer.Option(min=0, help="Passages to encode again and compare; 0: only checksums.")] = 32,
    seed: Annotated[int, typer.Option(help="Which passages are drawn.")] = 0,
    encoder: EncoderOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Check every byte of an index against its manifest, and encode some of its passages again. Ends with 1 if it is damaged.

    Checksums find a file that was cut short or changed, by name. Passages that are encoded again show that the vectors
    belong to the texts and to the encoder, whoever made them.
    """
    settings = settings_from(config, overrides).settings
    with mended_by_user():
        from retrieval.check import damaged_files, encode_again
        from retrieval.manifest import Manifest

        manifest = Manifest.load(folder)
        with bytes_progress() as progress:
            task = progress.add_task("checking", total=None)
            damaged = damaged_files(
                folder, manifest, lambda done, total: progress.update(task, completed=done, total=total)
            )
        for complaint in damaged:
            err.print(f"[bold red]damaged:[/] {escape(plain(complaint))}", highlight=False, soft_wrap=True)
        if damaged:
            raise typer.Exit(DAMAGED)
        out.print(f"{len(manifest.files)} files match the manifest")
        if not sample:
            return
        with waiting("starting") as status:
            quiet_libraries()
            from medverify.assemble import load_encoder

            model = load_encoder(settings, encoder or settings.retrieval.encoder, status.update)
            status.update("encoding a sample")
            found = encode_again(folder, manifest, model, sample, seed)
    compared = (
        f"{found.rows} passages encoded again: largest difference {found.largest:.1e}, allowed {found.allowed:.1e}"
    )
    if found.wrong:
        rows = ", ".join(map(str, found.wrong[:8])) + (", …" if len(found.wrong) > 8 else "")
        err.print(f"[bold red]damaged:[/] {compared}; {len(found.wrong)} are beyond it, rows {rows}", highlight=False)
        raise typer.Exit(DAMAGED)
    out.print(compared, highlight=False)


def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    k: Annotated[int, typer.Option("--top", "-k", min=1, help="How many passages.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print hits as JSON lines.")] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Search the index, as the judge does."""
    settings = settings_from(config, overrides).settings
    with mended_by_user():
        with waiting("starting") as status:
            quiet_libraries()
            from medverify.assemble import load_retriever

            retriever = load_retriever(settings, status.update)
        hits = asyncio.run(_search(retriever, query, k))
    for hit in hits:
        if as_json:
            print(json.dumps(hit.model_dump(), ensure_ascii=False))  # noqa: T201 - for programs
        else:
            passage = hit.passage
            origin = escape(plain(f"{hit.score:.3f}  {passage.id}  {passage.source}"))
            out.print(f"[bold]{hit.rank}. {escape(plain(passage.title))}[/]  [dim]{origin}[/]")
            out.print(plain(passage.text) + "\n", highlight=False, markup=False)


async def _search(retriever: Retriever, query: str, k: int) -> list[Hit]:
    try:
        return await retriever.search(query, k)
    finally:
        await retriever.aclose()
