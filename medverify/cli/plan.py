"""`medverify index plan`: what an index would need, before it is built."""

import json
from typing import Annotated

import typer
from rich.table import Table

from medverify.cli.common import out
from retrieval.capacity import MACHINES, PROFILES
from retrieval.capacity import plan as capacity

_CAPTION = "knee: the batch size up to which reading the vectors, and beyond which computing decides"


def plan(
    rows: Annotated[int, typer.Option(min=1, help="Passages in the index.")],
    dim: Annotated[int, typer.Option(min=1, help="Length of a vector.")] = 768,
    batch: Annotated[int, typer.Option(min=1, help="Queries that are searched together.")] = 64,
    efficiency: Annotated[float, typer.Option(min=0.01, max=1, help="Share of the peak rates that is reached.")] = 0.7,
    usable: Annotated[float, typer.Option(min=0.01, max=1, help="Share of the memory that vectors may fill.")] = 0.85,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Compute memory, devices and queries a second of exact search, from the data sheets of common machines."""
    plans = [
        capacity(rows, dim, profile, machine, batch, efficiency=efficiency, usable=usable)
        for profile in PROFILES
        for machine in MACHINES
    ]
    if as_json:
        for found in plans:
            print(json.dumps(found._asdict()))  # noqa: T201 - for programs
        return
    table = Table(header_style="bold", title=f"{rows:,} x {dim}, {batch} queries a batch", caption=_CAPTION)
    for heading in ("machine", "profile"):
        table.add_column(heading)
    for heading in ("GB", "devices", "ms a batch", "queries/s", "knee"):
        table.add_column(heading, justify="right")
    for found in plans:
        table.add_row(
            found.machine,
            found.profile,
            f"{found.bytes / 1e9:.1f}",
            str(found.devices),
            f"{found.seconds * 1000:.1f}",
            f"{found.rate:,.0f}",
            str(found.knee),
        )
    out.print(table)
