"""`medverify index info` and `medverify index verify`: look into an index, and check it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import filesize
from rich.markup import escape
from rich.table import Table

from medverify.cli.common import (
    ConfigOption,
    EncoderOption,
    JsonOption,
    SetOption,
    err,
    mended_by_user,
    out,
    quiet_libraries,
    settings_from,
    waiting,
)
from medverify.cli.progress import bytes_progress
from medverify.cli.render import plain

if TYPE_CHECKING:
    from retrieval.compressed import Recipe
    from retrieval.manifest import Parity

DAMAGED = 1  # exit code

FolderArgument = Annotated[Path, typer.Argument(help="Folder of the index.")]


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
        ("parity", told_parity(manifest.parity) if manifest.parity else ""),
        ("compressed", "\n".join(map(_compressed, copies))),
        ("texts", filesize.decimal(texts)),
        ("built by", manifest.created_by),
        ("digest", manifest.digest),
    ):
        if value:
            table.add_row(name, escape(plain(value)))
    out.print(table, highlight=False)


def told_parity(parity: "Parity") -> str:
    """What a sample has shown, for people."""
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
