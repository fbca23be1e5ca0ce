"""`medverify pool`: what a training config's pool is made of."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Column, Table

from medverify.cli.common import JsonOption, SetOption, fail, mended_by_user, out, quiet_libraries, waiting
from medverify.cli.train import TrainingConfigArgument, training_file

if TYPE_CHECKING:
    from curriculum.pool.load import PoolReport

_SHOWN = 10  # pairs of each pack; --json gives all


def pool(
    config: TrainingConfigArgument,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the labelled traces of a training config, and show what `medverify train` would train a judge on.

    Shows what each source holds and under which licence, what is left out of it (unlabelled, in an evaluation pack, twice,
    labelled both ways, over the cap of its question) and how much can be drawn, half of it right. Writes nothing. A source
    that is one of the evaluation packs is refused.
    """
    from configs.load import load_settings
    from curriculum.pool.errors import PoolError
    from curriculum.pool.load import load_pool
    from curriculum.settings import TrainingConfig

    try:
        with mended_by_user(), waiting("reading the pool"):
            quiet_libraries()
            settings = load_settings(training_file(config), os.environ, overrides or [], TrainingConfig).settings
            report = load_pool(settings.guarded_pool).report
    except PoolError as error:
        fail(error)
    if as_json:
        print(json.dumps(dataclasses.asdict(report)))  # noqa: T201 - for programs
        return
    _show_sources(report)
    _show_packs(report)


def _show_sources(report: "PoolReport") -> None:
    sources = report.sources.values()
    table = Table("", *(Column(escape(name), overflow="fold") for name in report.sources), header_style="bold")
    for name, numbers in (
        ("labelled traces", [one.read for one in sources]),
        ("unlabelled, left out", [one.unlabelled for one in sources]),
        ("in an evaluation pack, left out", [one.overlapping for one in sources]),
        ("same text as another, left out", [one.counts.duplicates for one in sources]),
        ("labelled both ways, left out", [one.counts.contradictory for one in sources]),
        ("over the cap, left out", [one.counts.over_cap for one in sources]),
        ("right", [one.counts.right for one in sources]),
        ("wrong", [one.counts.wrong for one in sources]),
        ("questions", [one.counts.questions for one in sources]),
        ("can be drawn", [one.counts.drawable for one in sources]),
    ):
        table.add_row(name, *(f"{number:,}" for number in numbers))
    table.add_row("share of the draws", *(f"{one.share:.3f}" for one in sources))
    table.add_row("generators", *(_generators(one.generators) for one in sources))
    table.add_row("licence", *(escape(one.licence) for one in sources))
    table.add_row("provenance", *(escape(one.provenance) for one in sources))
    out.print(table)
    out.print(
        f"{report.drawable:,} examples can be drawn, half of them right; pool {report.digest[:12]}", highlight=False
    )


def _generators(traces: Mapping[str, int]) -> str:
    return escape("\n".join(f"{name or 'not named'} {number:,}" for name, number in traces.items()))


def _show_packs(report: "PoolReport") -> None:
    if not report.packs:
        out.print("[yellow]not compared with any evaluation pack[/]: name them in pool.overlap.packs")
        return
    place = Column("evaluation pack", overflow="fold")
    table = Table(place, "questions", "same", "near", "leaked", "traces", "left out", header_style="bold")
    for pack in report.packs:
        numbers = (pack.questions, pack.exact, pack.near, pack.leaked, pack.traces, pack.removed)
        table.add_row(escape(pack.pack), *(f"{number:,}" for number in numbers))
    out.print(table)
    for pack in report.packs:
        for pair in pack.pairs[:_SHOWN]:
            same = "same answer" if pair.same_answer else "not the same answer"
            told = f"{pack.pack}: {pair.question} is like {pair.pooled} ({pair.kind} {pair.similarity:.2f}, {same})"
            out.print(told, highlight=False, markup=False, soft_wrap=True)
        if len(pack.pairs) > _SHOWN:
            out.print(f"{pack.pack}: {len(pack.pairs) - _SHOWN} more pairs with --json", highlight=False, markup=False)
