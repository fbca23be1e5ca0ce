"""`medverify demo`: three cases written for this project, judged before your eyes."""

import asyncio
import io
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel

from configs.catalogue import Entry, load_catalogue
from configs.durable import write_whole
from medverify.cli.common import (
    NOT_JUDGED,
    ConfigOption,
    ModelOption,
    SetOption,
    mended_by_user,
    out,
    quiet_libraries,
    settings_from,
    waiting,
)
from medverify.cli.render import panel
from verifier.examples import example_cases
from verifier.types import Judgment, Status

_FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # rich's drawing would fetch its font from elsewhere


def demo(
    picture: Annotated[Path | None, typer.Option(help="Also save the last case as a picture (SVG).")] = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    overrides: SetOption = None,
) -> None:
    """Judge three short cases: one right, one with a wrong mechanism, one with an outdated claim.

    Needs no account and no GPU. The small judge that ships by default shows how the service works; how reliable it is known to
    be is printed at the end.
    """
    settings = settings_from(config, overrides, model).settings
    cases = example_cases()
    with mended_by_user(), waiting("starting") as status:
        quiet_libraries()
        from medverify.assemble import load_judge

        judge = load_judge(settings, status.update)

        async def run() -> list[Judgment]:
            await judge.warm_up()
            status.update(f"judging {len(cases)} cases")
            judgments = await judge.verify_together(cases)
            await judge.aclose()
            status.stop()
            return judgments

        judgments = asyncio.run(run())
    panels = [panel(case, judgment) for case, judgment in zip(cases, judgments, strict=True)]
    for shown in panels:
        out.print(shown)
    if picture:
        _save(panels[-1], picture)
    out.print(quality_line(settings.judge.model, settings.judge.adapter), highlight=False)
    if any(judgment.status is not Status.SCORED for judgment in judgments):
        raise typer.Exit(NOT_JUDGED)


def quality_line(model: str, adapter: str = "") -> str:
    """In one line: how good a judge is known to be. With an adapter it is another judge than the one that was measured."""
    entry: Entry | None = load_catalogue().by_name.get(model.partition("@")[0])
    if entry is None or not entry.quality or adapter:
        return f"[bold]How good is this judge?[/] {model}: not measured. Do not rely on its verdicts."
    rows = "; ".join(
        f"{row.metric} {row.value:.3f} [{row.low:.3f}, {row.high:.3f}] on {row.dataset} (n = {row.n})"
        for row in entry.quality
    )
    return f"[bold]How good is this judge?[/] {entry.name}: {rows}; 0.5 is chance. {entry.description}"


def _save(shown: Panel, path: Path) -> None:
    """Draw a panel as SVG that loads nothing from elsewhere."""
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(shown)
    drawing = console.export_svg(title="medverify demo")
    write_whole(path, _FONT_FACE.sub("", drawing))
