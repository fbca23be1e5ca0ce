"""`medverify index compress`: a smaller, approximate copy of an index, with its measured recall."""

from pathlib import Path
from typing import Annotated

import typer

from medverify.cli.common import mended_by_user, out, quiet_libraries, waiting


def compress(
    folder: Annotated[Path, typer.Argument(help="Folder of the index.")],
    profile: Annotated[
        str,
        typer.Option(
            help="sq8: a byte a dimension; pqM: M bytes a vector; ivfL: sq8 in L lists, of which one in 16 is read."
        ),
    ] = "sq8",
    seed: Annotated[int, typer.Option(min=0, help="Of the training sample and of the sampled queries.")] = 0,
) -> None:
    """Compress an index beside its exact vectors, and measure how many of the exact best passages it finds.

    The queries are vectors of sampled passages, their own rows not counted; questions may fare differently.
    """
    with mended_by_user(), waiting(f"compressing to {profile}"):
        quiet_libraries()
        from retrieval import compress as making
        from retrieval.manifest import Manifest
        from retrieval.shards import open_shards

        manifest = Manifest.load(folder)
        shards = open_shards(folder, manifest)
        recipe = making.compress(folder, manifest.digest, shards, profile, seed=seed)
    share = recipe.file.size / sum(shard.nbytes for shard in shards)
    out.print(f"{profile}: {recipe.file.size / 1e6:,.1f} MB, {share:.0%} of the exact vectors", highlight=False)
    recall = recipe.recall
    for how, at_3, at_10 in (
        ("candidates scored exactly", recall.at_3, recall.at_10),
        ("compressed scores alone", recall.plain_at_3, recall.plain_at_10),
    ):
        out.print(f"recall@3 {at_3:.3f}, recall@10 {at_10:.3f}  ({how}, {recall.queries} passages)", highlight=False)
