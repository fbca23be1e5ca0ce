"""Commands that only tell: models, doctor, config show, schema."""

import json
import os

import typer
from rich.markup import escape
from rich.table import Table

from configs.catalogue import load_catalogue
from configs.doctor import diagnose
from configs.locate import ModelNotAvailableError, locate
from medverify.cli.common import BAD_INPUT, ConfigOption, JsonOption, SetOption, out, settings_from
from verifier.types import json_schemas

_MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "missing": "[red]missing[/]"}


def models(as_json: JsonOption = False, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """List the models that are known by name: what is here, size, licence, and how good each judge was measured to be."""
    cache = settings_from(config, overrides).settings.paths.cache
    rows = []
    for entry in load_catalogue().models:
        try:
            here, how = True, locate(entry, cache).origin
        except ModelNotAvailableError as error:
            here, how = False, str(error)
        rows.append((entry, here, how))
    if as_json:
        records = [{**entry.model_dump(mode="json"), "available": here, "origin": how} for entry, here, how in rows]
        print(json.dumps(records, ensure_ascii=False, indent=2))  # noqa: T201 - for programs
        return
    table = Table(header_style="bold")
    for name in ("name", "kind", "here", "size", "licence", "measured quality"):
        table.add_column(name, overflow="fold")
    for entry, here, how in rows:
        mark = f"[green]yes[/] ({escape(how)})" if here else "[red]no[/]"
        table.add_row(entry.name, entry.kind, mark, f"{entry.size_mb} MB", entry.licence, entry.quality_summary)
    out.print(table)
    for entry, here, how in rows:
        out.print(
            f"[bold]{entry.name}[/]: {escape(entry.description)}" + ("" if here else f"\n  [dim]{escape(how)}[/]"),
            highlight=False,
        )


def doctor(as_json: JsonOption = False, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Tell what this machine can run, what is missing, and the command that mends it.

    Exit code 2 if something is missing that these settings need.
    """
    settings = settings_from(config, overrides).settings
    checks = diagnose(settings, os.environ)
    if as_json:
        records = [{"name": c.name, "state": c.state, "detail": c.detail, "fix": c.fix} for c in checks]
        print(json.dumps(records, ensure_ascii=False, indent=2))  # noqa: T201 - for programs
    else:
        table = Table(header_style="bold")
        for name in ("check", "state", "detail", "what to do"):
            table.add_column(name, overflow="fold")
        for check in checks:
            table.add_row(check.name, _MARKS[check.state], escape(check.detail), escape(check.fix))
        out.print(table)
    if any(check.state == "missing" for check in checks):
        raise typer.Exit(BAD_INPUT)


def show_config(as_json: JsonOption = False, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Print every setting in force and where it came from: default, file, environment or flag."""
    rows = settings_from(config, overrides).rows()
    if as_json:
        records = {row.key: {"value": row.value, "origin": row.origin} for row in rows}
        print(json.dumps(records, default=str, indent=2))  # noqa: T201 - for programs
        return
    table = Table(header_style="bold")
    for name in ("setting", "value", "from", "meaning"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(row.key, *map(escape, (str(row.value), row.origin, row.description)))
    out.print(table)


def schema() -> None:
    """Print the JSON schemas of the types that cross the wire: cases in, judgments out."""
    print(json.dumps(json_schemas(), indent=2))  # noqa: T201 - for programs
