"""`medverify index add-bm25`: give an index what the profiles bm25 and hybrid need."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from medverify.cli.common import err, mended_by_user, out


def add_bm25(folder: Annotated[Path, typer.Argument(help="Folder of the index.")]) -> None:
    """Add a word index to an index of passages, for the profiles bm25 and hybrid; replaces the one it has.

    No model is needed. A run that is killed leaves the index as it was, or without a word index.
    """
    with mended_by_user():
        from retrieval.bm25 import FOLDER, add_bm25

        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
            task = progress.add_task("splitting into words", total=None)
            added = add_bm25(folder, lambda done, total: progress.update(task, completed=done, total=total))
    size = sum(entry.size for entry in added.files.values())
    out.print(f"{folder / FOLDER}: words of {added.rows} passages, {size / 1e6:.1f} MB", highlight=False, markup=False)
    out.print(f"digest {added.digest}", highlight=False)
