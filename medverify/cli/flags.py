"""Flags that the chosen mode of a command does not read: refused, with the reason, before anything is done.

A flag that does nothing looks as if it had done something.
"""

from collections.abc import Iterable, Sequence

import typer

from medverify.cli.common import fail


def refuse_unread(context: typer.Context, names: Iterable[str], why: str) -> None:
    """End with a message if any of these parameters was given on the command line, whatever its value."""
    wanted = set(names)
    given = [
        param.opts[0] if param.param_type_name == "option" else getattr(param, "metavar", None) or param.opts[0]
        for param in context.command.params
        if param.name in wanted and _is_given(context, param.name)
    ]
    if given:
        fail(f"{', '.join(given)} would do nothing: {why}")


def refuse_all_but(context: typer.Context, read: Iterable[str], why: str) -> None:
    """The same for all parameters of the command but these."""
    refuse_unread(context, {param.name or "" for param in context.command.params} - set(read), why)


def refuse_settings(overrides: Sequence[str] | None, read: Sequence[str], why: str) -> None:
    """End with a message if `--set` names a setting that is not read; only these are, and sections that end in a dot."""
    sections = tuple(name for name in read if name.endswith("."))
    names = (one.partition("=")[0].strip() for one in overrides or ())
    unread = [name for name in names if name not in read and not name.startswith(sections)]
    if unread:
        fail(f"--set {unread[0]} would do nothing: {why}; --set takes {' and '.join(read)} there")


#: Why a judge at a URL takes no settings of ours.
THERE = "with --url the judge is the service's, with its model and its settings"


def refuse_judge_settings(
    context: typer.Context, overrides: Sequence[str] | None, read: Sequence[str], *, index_here: bool = False
) -> None:
    """With `--url`, end with a message if a model or settings are given that only a judge in this process would read.

    Args:
        read: settings that are asked of the service.
        index_here: an index is opened in this process, as its own settings say.
    """
    refuse_unread(context, ("model",) if index_here else ("model", "config"), THERE)
    refuse_settings(overrides, (*read, *(("retrieval.", "retrieve.", "paths.") if index_here else ())), THERE)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
