"""`medverify search`: the index by hand."""

import asyncio
import json
from typing import Annotated

import typer
from rich.markup import escape

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
    if not hits:
        err.print("no passage has any of these words", highlight=False)
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
