"""`medverify score`: how good were these judgments?"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from medverify.cli.common import JsonOption, fail, mended_by_user, out
from medverify.cli.figures import interval, number, p_value, to_json
from verifier.calibration import Calibration

if TYPE_CHECKING:
    from eval.abstention import AbstentionReport
    from eval.quality import Comparison, Report


class By(StrEnum):
    """What reports are split by."""

    GENERATOR = "generator"


def score(
    judgments: Annotated[Path, typer.Argument(help="Judgments, as `medverify verify -o` writes them.")],
    pack: Annotated[Path, typer.Option(help="The pack they judge: PREFIX of .questions.jsonl and .traces.jsonl.")],
    by: Annotated[By | None, typer.Option(help="Also measure the traces of each generator by themselves.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Judgments of the same traces by another judge: paired differences.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="Measure calibrated probabilities; refused if it was fitted on any of these questions."),
    ] = None,
    accuracy: Annotated[
        list[float] | None,
        typer.Option(
            min=0, max=1, help="Abstain so that the answers reach this accuracy: at what coverage? May be given again."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare judgments with the labels of a pack: all metrics of verdicts and probabilities, with 95 % intervals.

    A label says whether the trace reaches the right final answer. Cases that were not judged are counted, never scored.
    """
    with mended_by_user():
        from eval.abstention import measure_abstention
        from eval.quality import (
            by_generator,
            calibrated_columns,
            compare,
            judged_columns,
            read_judgments,
            report,
            scored,
        )
        from verifier.packs import PackError, read_pack

        try:
            cases = read_pack(pack)
            made = read_judgments(judgments)
            columns = judged_columns(made, cases)
            other = judged_columns(read_judgments(against), cases) if against else None
            if calibration:
                judges = {judgment.judge_id for judgment in made}
                columns = calibrated_columns(columns, cases, Calibration.load(calibration), judges)
            whole = report(columns)
            parts = by_generator(columns) if by else {}
            comparison = compare(columns, other) if other else None
        except (OSError, PackError, ValueError) as error:
            fail(error)
        usable = scored(columns)
        abstentions = [measure_abstention(usable.labels, usable.p, usable.questions, wish) for wish in accuracy or ()]
    if as_json:
        record = {"all": whole, "generators": parts, "against": comparison, "abstention": abstentions}
        print(to_json(record))  # noqa: T201 - for programs
        return
    _show("all traces" if parts else "", whole)
    for name, part in parts.items():
        _show(name or "no generator named", part)
    if comparison:
        _show_comparison(comparison)
    if abstentions:
        _show_abstentions(abstentions)


def _show(title: str, report: "Report") -> None:
    table = Table("metric", "value", "95 % interval", header_style="bold", title=escape(title) or None)
    for name, estimate in report.estimates.items():
        table.add_row(name, number(estimate.value), interval(estimate))
    out.print(table)
    out.print(
        f"{report.scored} judged with a label, {report.right} of them right answers; {report.not_judged} not judged; "
        f"{report.unlabelled} without a label; intervals from 1,000 draws of the {report.questions} questions",
        highlight=False,
    )


def _show_comparison(comparison: "Comparison") -> None:
    table = Table("metric", "these", "other", "difference", "95 % interval", "p", header_style="bold")
    for name, found in comparison.differences.items():
        table.add_row(
            name,
            number(found.first),
            number(found.second),
            f"{found.difference.value:+.3f}",
            interval(found.difference),
            p_value(found.p_value),
        )
    out.print(table)
    out.print(f"{comparison.traces} traces of {comparison.questions} questions that both have judged", highlight=False)


def _show_abstentions(reports: "list[AbstentionReport]") -> None:
    table = Table("wished accuracy", "answer from", "coverage", "accuracy reached", header_style="bold")
    for found in reports:
        table.add_row(
            number(found.wished),
            "never reached" if found.threshold is None else f"max(p, 1 - p) ≥ {found.threshold:.3f}",
            f"{number(found.coverage.value)} {interval(found.coverage)}",
            f"{number(found.accuracy.value)} {interval(found.accuracy)}",
        )
    out.print(table)
    out.print("coverage and accuracy on questions that the threshold was not chosen on", highlight=False)
