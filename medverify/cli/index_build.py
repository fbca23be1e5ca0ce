"""`medverify index build`: passages become an index."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

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
from medverify.cli.index import told_parity
from medverify.cli.progress import EncodingProgress

if TYPE_CHECKING:
    from retrieval.encoder import Encoder
    from retrieval.manifest import Manifest

StoredType = Literal["float32", "float16"]


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
    out.print(told_parity(parity), highlight=False)
    return manifest


def _show_built(folder: Path, manifest: "Manifest") -> None:
    dropped = ", ".join(f"{count} {reason}" for reason, count in manifest.dropped.items() if count)
    left_out = f" (left out: {dropped})" if dropped else ""
    out.print(f"{folder}: {manifest.rows} passages{left_out}", highlight=False, markup=False)
    out.print(f"digest {manifest.digest}", highlight=False)
