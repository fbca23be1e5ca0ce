"""`medverify index build` and `medverify search`: the index by hand."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from medverify.cli.common import (
    ConfigOption,
    SetOption,
    err,
    mended_by_user,
    out,
    quiet_libraries,
    settings_from,
    waiting,
)
from medverify.cli.render import plain
from retrieval.passage import Hit, Retriever


def build(
    sources: Annotated[
        list[str],
        typer.Argument(help="What to index, in this order: starter, open-medicine, or .jsonl files (id, title, text)."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the new index.")],
    encoder: Annotated[str | None, typer.Option(help="Encoder: a name from `medverify models`, or a folder.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an index that is there already.")] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Build an index: clean, encode, write, and only then put it in place.

    A build that is killed leaves what was there before. Point a judge at the result with --set retrieval.index=FOLDER.
    """
    settings = settings_from(config, overrides).settings
    with mended_by_user():
        with waiting("starting") as status:
            quiet_libraries()
            from medverify.assemble import load_encoder
            from retrieval.build import build_index
            from retrieval.sources import read

            model = load_encoder(settings, encoder or settings.retrieval.encoder, status.update)
        with _progress() as progress:
            task = progress.add_task("encoding", total=None)
            manifest = build_index(
                (passage for source in sources for passage in read(source)),
                model,
                output,
                overwrite=overwrite,
                on_progress=lambda done, total: progress.update(task, completed=done, total=total),
            )
    dropped = ", ".join(f"{count} {reason}" for reason, count in manifest.dropped.items() if count)
    left_out = f" (left out: {dropped})" if dropped else ""
    out.print(f"{output}: {manifest.rows} passages{left_out}", highlight=False, markup=False)
    out.print(f"digest {manifest.digest}", highlight=False)


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


def _progress() -> Progress:
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err, disable=not err.is_terminal)
