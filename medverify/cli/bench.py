"""`medverify index bench`: what an index or a server bears."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from configs.reasons import reason
from medverify.cli.common import (
    ConfigOption,
    SetOption,
    fail,
    mended_by_user,
    out,
    quiet_libraries,
    settings_from,
    waiting,
)
from retrieval.passage import RetrievalError

if TYPE_CHECKING:  # not loaded for --help
    from retrieval.local import LocalRetriever
    from serve.load import Ask


def bench(
    folder: Annotated[Path | None, typer.Argument(help="Folder of an index, searched in this process.")] = None,
    url: Annotated[str | None, typer.Option(help="A server instead, such as http://127.0.0.1:8081.")] = None,
    clients: Annotated[str, typer.Option(help="Clients at once, each with one search in flight.")] = "1,16,64,256",
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds for each number of clients.")] = 10.0,
    k: Annotated[int, typer.Option("--top", "-k", min=1, help="How many passages.")] = 3,
    queries: Annotated[Path | None, typer.Option(help="Text file, one query a line; else pairs of headings.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON lines.")] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Load an index or a server with searches: queries a second, latencies, errors.

    The answer cache of an index in this process is off. A server's is in force: it answers what --queries names more than once.
    The pairs of headings are all different.
    """
    if (folder is None) == (url is None):
        fail("name either the folder of an index or --url")
    numbers = [int(number) if number.strip().isdecimal() else 0 for number in clients.split(",")]
    if not all(numbers):
        fail(f"--clients: expected numbers such as 1,16,64, found {clients!r}")
    place = [f"retrieval.index={folder}"] if folder else []
    settings = settings_from(config, [*(overrides or []), *place, "retrieve.cached_hits=0"]).settings
    with mended_by_user():
        from serve.load import Connection, run_load

        asked = _queries(queries)
        if url:
            try:
                Connection(url, k)
            except ValueError as error:
                fail(f"--url: {error}")

        async def measure(retriever: "LocalRetriever | None") -> list[dict[str, float]]:
            rows = []
            for number in numbers:
                async with AsyncExitStack() as stack:
                    asks: list[Ask] = [_asking(retriever, k)] * number if retriever else []
                    if retriever is None:
                        asks = [(await stack.enter_async_context(Connection(url or "", k))).ask for _ in range(number)]
                    load = await run_load(asks, asked, seconds)
                rows.append(
                    {
                        "clients": number,
                        "queries_per_s": round(load.rate, 1),
                        "p50_ms": round(load.quantile_ms(0.5), 2),
                        "p99_ms": round(load.quantile_ms(0.99), 2),
                        "errors": load.errors,
                    }
                )
            if retriever is not None:
                await retriever.aclose()
            return rows

        opened = None
        if folder:
            with waiting("starting") as status:
                quiet_libraries()
                from medverify.assemble import load_local

                opened = load_local(settings, status.update)
        try:
            rows = asyncio.run(measure(opened))
        except OSError as error:
            fail(f"{url}: cannot be reached: {error}; start a server with `medverify retrieve serve`")
    if as_json:
        for row in rows:
            print(json.dumps(row))  # noqa: T201 - for programs
        return
    table = Table("clients", "queries/s", "p50 ms", "p99 ms", "errors", box=None)
    for row in rows:
        table.add_row(*map(str, row.values()))
    out.print(table)


def _asking(retriever: "LocalRetriever", k: int) -> "Ask":
    async def ask(query: str) -> str:
        try:
            await retriever.search(query, k)
        except RetrievalError as error:
            return type(error).__name__
        return "200"

    return ask


def _queries(path: Path | None) -> Iterator[str]:
    """Queries without an end: the file's lines over and over, or pairs of headings of the starter corpus."""
    from retrieval.sources import starter

    if path is not None:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            fail(f"{path}: cannot be read: {reason(error)}")
        if not lines:
            fail(f"{path}: has no queries")
    else:
        titles = [passage.title for passage in islice(starter(), 200)]
        # The first of a pair varies fastest, so that neighbours in time have little in common.
        lines = [f"{first} and {second}" for second, first in product(titles, titles)]
    while True:
        yield from lines
