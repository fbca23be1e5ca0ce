"""`medverify attack`: can the judge be fooled?"""

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from configs.settings import Settings
from eval.report.table import Cell, Table
from medverify.cli.common import (
    NOT_JUDGED,
    OK,
    ConfigOption,
    JsonOption,
    ModelOption,
    SetOption,
    fail,
    mended_by_user,
    out,
    settings_from,
)
from medverify.cli.flags import refuse_judge_settings, refuse_unread
from medverify.cli.grid import show
from medverify.cli.render import plain
from verifier.examples import example_cases
from verifier.packs import LabelledCase, PackError, read_pack
from verifier.types import Judgment

if TYPE_CHECKING:
    from eval.attack.attack import Attack, Base, Family
    from eval.attack.report import AttackReport
    from verifier.prompt import Prompt

_AT_A_URL = 16  # cases in flight
_LAST_PORT = 65_535
#: Whether the reasoning of a demo case is right, and the options that it ends with and that are right.
_DEMO: dict[str, tuple[Literal[0, 1], str, str]] = {
    "right": (1, "B", "B"),
    "wrong-mechanism": (0, "B", "B"),
    "outdated-claim": (0, "A", "B"),
}


def attack(
    context: typer.Context,
    pack: Annotated[
        Path | None,
        typer.Option(
            help="Attack traces of a pack: PREFIX of .questions.jsonl and .traces.jsonl; else the demo cases."
        ),
    ] = None,
    questions: Annotated[
        int, typer.Option(min=1, help="With --pack: questions to draw, with one trace each, right and wrong in turn.")
    ] = 20,
    url: Annotated[
        str | None, typer.Option(help="Attack the judge of a running `medverify serve` instead of one in this process.")
    ] = None,
    poison_at: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="With --url: serve the index of the settings there, for the judge to search in, so that passages can be "
            "poisoned. Start the judge with --set retrieval.index=http://HOST:PORT --set serve.cache.max_rows=0.",
        ),
    ] = None,
    families: Annotated[
        str,
        typer.Option(help="Families of attacks, with commas between them; all if empty. Unknown ones list the others."),
    ] = "",
    variants: Annotated[
        int, typer.Option(min=1, help="Attacks of each family on each trace, of the variants that the family has.")
    ] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of drawing and of writing attacks; not the judge's.")] = 0,
    together: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cases in work at once. 1 gives the same numbers in process and at a URL; the default is what the engine "
            "takes, or 16 at a URL.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Keep attacks, judgments and report in this folder; run again to continue."
        ),
    ] = None,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", help="With -o: judge the waves again that an outage or a deadline hit."),
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    model: ModelOption = None,
    overrides: SetOption = None,
) -> None:
    """Try to fool the judge, and count how often it was fooled.

    Labelled traces are judged as they are, then with attacks on them: forged verdicts, orders, flattery, padding and more, and
    traces that must never pass. The same seed writes the same attacks. At a URL, passages are poisoned with --poison-at only.

    Exit code: 0 all judged or refused; 1 some not judged, or foreign text gave a verdict or was live; 2 bad input.
    """
    if pack is None:
        refuse_unread(context, ("questions",), "the demo cases are attacked; --pack draws questions")
    if output is None:
        refuse_unread(context, ("retry_failed",), "only a folder of -o keeps what failed")
    if url is not None:
        asked = ("judge.sampling.seed", "judge.limits.deadline_s")
        refuse_judge_settings(context, overrides, asked, index_here=poison_at is not None)
    settings = settings_from(config, overrides, model).settings
    place = _place(poison_at, url)
    with mended_by_user():
        from eval.attack.folder import write_report
        from eval.attack.report import measure

        attacks, not_run = _written(
            pack, questions, families, variants, seed, can_poison=url is None or place is not None
        )
    judgments, prompt = _judged(settings, attacks, url, place, together, output, retry_failed=retry_failed)
    report = measure(attacks, judgments, prompt, not_run)
    if output:
        write_report(output, report)
    if as_json:
        sys.stdout.write(report.model_dump_json() + "\n")
    else:
        _show(report)
    held = report.guarantees
    unjudged = report.clean.not_judged or any(family.not_judged for family in report.families)
    raise typer.Exit(NOT_JUDGED if unjudged or held.live_marks or held.foreign_verdicts else OK)


def _written(
    pack: Path | None, questions: int, families: str, variants: int, seed: int, *, can_poison: bool
) -> "tuple[list[Attack], dict[str, str]]":
    from eval.attack.families import UnknownFamilyError, chosen
    from eval.attack.suite import make_attacks

    try:
        wanted = chosen(families)
    except UnknownFamilyError as error:
        fail(error)
    possible: list[Family] = [family for family in wanted if can_poison or not family.poisons]
    not_run = {
        family.name: "a service searches where it likes; see --poison-at, or attack a judge in this process"
        for family in wanted
        if family not in possible
    }
    return make_attacks(_bases(pack, questions, seed), possible, variants, seed), not_run


def _bases(pack: Path | None, questions: int, seed: int) -> "list[Base]":
    from eval.attack.suite import draw

    if pack is None:
        return demo_bases()
    try:
        drawn = draw(read_pack(pack), questions, seed)
    except PackError as error:
        fail(error)
    if not drawn:
        fail(f"{pack}: no trace has a label")
    return drawn


def demo_bases() -> "list[Base]":
    """The demo cases with their labels."""
    from eval.attack.suite import bases

    labelled = [LabelledCase(case, _DEMO[case.id][0], case.id, "", *_DEMO[case.id][1:]) for case in example_cases()]
    return bases(labelled, labelled)


def _judged(
    settings: Settings,
    attacks: "list[Attack]",
    url: str | None,
    place: tuple[str, int] | None,
    together: int | None,
    output: Path | None,
    *,
    retry_failed: bool,
) -> "tuple[list[Judgment], Prompt]":
    from configs.appended import OutputError
    from eval.attack.folder import prepare
    from eval.attack.target import AttackJournal, NotPoisonedError
    from medverify.cli.attack_judging import Attempt, at_url, in_process
    from verifier.prompt import load_prompt

    with ExitStack() as stack:
        try:
            journal = stack.enter_context(AttackJournal(prepare(output, attacks))) if output else None
        except (OutputError, OSError) as error:
            fail(error)
        how = Attempt(attacks, journal, retry_failed)
        try:
            with mended_by_user():
                if url is None:
                    return in_process(settings, how, together)
                return asyncio.run(at_url(settings, how, url, place, together or _AT_A_URL)), load_prompt("judge")
        except (NotPoisonedError, OSError, OutputError) as error:
            fail(error)


def _place(poison_at: str | None, url: str | None) -> tuple[str, int] | None:
    """Host and port of the poisoned index."""
    if poison_at is None:
        return None
    host, colon, port = poison_at.rpartition(":")
    if url is None:
        fail("--poison-at is for a judge at a --url; one in this process is poisoned without it")
    if not colon or not host or not port.isdecimal() or int(port) > _LAST_PORT:
        fail(f"--poison-at: expected HOST:PORT, such as 127.0.0.1:8082, found {poison_at!r}")
    return host, int(port)


def _show(report: "AttackReport") -> None:
    from eval.attack.markdown import COLUMNS, notes, rows

    show(Table("", COLUMNS, [tuple(map(_cell, cells)) for cells in rows(report)], len(COLUMNS) - 1), out)
    for note in notes(report):
        out.print(f"- {note}", highlight=False, markup=False)
    for shift in report.worst[:3]:
        moved = f"{shift.clean_p:.3f} → {shift.p:.3f}, expected {shift.expected}"
        out.print(f"\n{shift.id}: p(1) {moved}", highlight=False, markup=False)
        out.print(plain(shift.text), highlight=False, markup=False, style="dim")


def _cell(text: str) -> Cell:
    """The interval of a rate or mean by itself."""
    value, bracket, interval = text.partition("[")
    return Cell(value.strip(), bracket + interval)
