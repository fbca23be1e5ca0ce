"""`medverify calibrate`: make a judge's probabilities mean what they say."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from configs.durable import write_whole
from medverify.cli.common import JsonOption, fail, mended_by_user, out
from medverify.cli.figures import interval, number, p_value

if TYPE_CHECKING:
    from verifier.calibration import Calibration


class CurveName(StrEnum):
    """Kinds of curves."""

    AUTO = "auto"
    TEMPERATURE = "temperature"
    BETA = "beta"
    ISOTONIC = "isotonic"


def calibrate(
    judgments: Annotated[Path, typer.Argument(help="Judgments of one judge, as `medverify verify -o` writes them.")],
    pack: Annotated[Path, typer.Option(help="The pack they judge: PREFIX of .questions.jsonl and .traces.jsonl.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The calibration, for judge.calibration.")],
    method: Annotated[
        CurveName, typer.Option(help="Kind of curve; auto: what loses least on questions it was not fitted on.")
    ] = CurveName.AUTO,
    seed: Annotated[int, typer.Option(min=0, help="Of the folds and of the intervals.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Fit a calibration to labelled judgments, and measure it on questions that it was not fitted on.

    The file belongs to the judge that made the judgments: `--set judge.calibration=FILE` fills `p_calibrated`, and any other
    judge refuses it. Calibration mends what a probability says; it does not make a judge tell right from wrong any better.
    """
    with mended_by_user():
        from eval.calibrate import METHODS
        from eval.calibrate import calibrate as fitted
        from eval.quality import read_judgments
        from verifier.packs import PackError, read_pack

        methods = [name for name in METHODS if method in (CurveName.AUTO, name)]
        try:
            calibration = fitted(read_judgments(judgments), read_pack(pack), pack.name, methods, seed)
            write_whole(output, calibration.to_json())
        except (OSError, PackError, ValueError) as error:
            fail(error)
    if as_json:
        print(json.dumps(calibration.describe(), ensure_ascii=False, indent=1))  # noqa: T201 - for programs
        return
    _show(calibration)


def _show(calibration: "Calibration") -> None:
    table = Table("measure", "before", "after", "change", "95 % interval", "p", header_style="bold")
    for name, figure in calibration.figures.items():
        table.add_row(
            name,
            f"{number(figure.before.value)} {interval(figure.before)}",
            f"{number(figure.after.value)} {interval(figure.after)}",
            f"{figure.change.value:+.3f}",
            interval(figure.change),
            p_value(figure.p_value),
        )
    out.print(table)
    on = calibration.fitted
    out.print(
        f"{calibration.curve.method}, fitted on {on.traces} traces of {on.questions} questions, {on.right} of them right; "
        f"`after` is out of fold: each fifth of the questions by a curve fitted on the others",
        highlight=False,
    )
    change = calibration.figures["log loss"].change
    if not change.high < 0:
        out.print(
            "The log loss is not surely lower than before: this calibration may not be worth using.", style="yellow"
        )
