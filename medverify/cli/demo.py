"""`medverify demo`: three cases written for this project, judged before your eyes."""

import asyncio
from importlib import resources

import typer

from configs.catalogue import Entry, load_catalogue
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
from verifier.types import Case, Status


def demo(config: ConfigOption = "laptop", model: ModelOption = None, overrides: SetOption = None) -> None:
    """Judge three short cases: one right, one with a wrong mechanism, one with an outdated claim.

    Needs no account and no GPU. The small judge that ships by default shows how the service works; how reliable it is known to
    be is printed at the end.
    """
    settings = settings_from(config, overrides, model).settings
    cases = demo_cases()
    with mended_by_user(), waiting("starting") as status:
        quiet_libraries()
        from medverify.assemble import load_judge

        judge = load_judge(settings, status.update)

        async def run() -> bool:
            await judge.warm_up()
            status.update(f"judging {len(cases)} cases")
            judgments = await judge.verify_together(cases)
            await judge.engine.aclose()
            await judge.retriever.aclose()
            status.stop()
            for case, judgment in zip(cases, judgments, strict=True):
                out.print(panel(case, judgment))
            return all(judgment.status is Status.SCORED for judgment in judgments)

        judged = asyncio.run(run())
    out.print(quality_line(settings.judge.model), highlight=False)
    if not judged:
        raise typer.Exit(NOT_JUDGED)


def quality_line(model: str) -> str:
    """In one line: how good a judge is known to be."""
    entry: Entry | None = load_catalogue().by_name.get(model.partition("@")[0])
    if entry is None or not entry.quality:
        return f"[bold]How good is this judge?[/] {model}: not measured. Do not rely on its verdicts."
    rows = "; ".join(
        f"{row.metric} {row.value:.3f} [{row.low:.3f}, {row.high:.3f}] on {row.dataset} (n = {row.n})"
        for row in entry.quality
    )
    return f"[bold]How good is this judge?[/] {entry.name}: {rows}. {entry.description}"


def demo_cases() -> list[Case]:
    """The three cases."""
    text = (resources.files("medverify") / "demo" / "cases.jsonl").read_text(encoding="utf-8")
    return [Case.model_validate_json(line) for line in text.splitlines()]
