"""`medverify score`: how good were these judgments?"""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from eval.packs import PackError, read_pack
from medverify.cli.common import fail, mended_by_user, out


def score(
    judgments: Annotated[Path, typer.Argument(help="Judgments, as `medverify verify -o` writes them.")],
    pack: Annotated[Path, typer.Option(help="The pack they judge: PREFIX of .questions.jsonl and .traces.jsonl.")],
) -> None:
    """Compare judgments with the labels of a pack: AUROC, accuracy and balanced accuracy with 95 % intervals.

    A label says whether the trace reaches the right final answer. Cases that were not judged are counted, never scored.
    """
    with mended_by_user():
        from eval.quality import measure, read_judgments

        try:
            report = measure(read_judgments(judgments), read_pack(pack))
        except (OSError, PackError, ValueError) as error:
            fail(str(error))
    table = Table("metric", "value", "95 % interval", header_style="bold")
    for name, estimate in report.estimates.items():
        table.add_row(name, f"{estimate.value:.3f}", f"[{estimate.low:.3f}, {estimate.high:.3f}]")
    out.print(table)
    out.print(
        f"{report.scored} judged with a label, {report.right} of them right answers; {report.not_judged} not judged; "
        f"{report.unlabelled} without a label; intervals from 1,000 draws of whole questions",
        highlight=False,
    )
