"""The tables of a report, from its figures; the page, the Markdown and the terminal show the same ones."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from eval.report.schema import (
    Agreement,
    Budget,
    Compared,
    Comparison,
    Conduct,
    Cost,
    Failure,
    Figure,
    PackReport,
    Paired,
    Report,
    Selection,
    Verification,
)
from eval.report.table import ABSENT, Cell, Table, figure, number, share, words

_Of = TypeVar("_Of", Conduct, Cost)
_Row = TypeVar("_Row", Verification, Selection)
INTERVALS = "In brackets: 95 % intervals over questions."


def unfinished(report: Report) -> str:
    """What to say above all figures of a run that has not come to its end; nothing of one that has."""
    passes = [of for pack in report.packs for of in pack.conduct]
    left = sum(of.missing for of in passes)
    if not left:
        return ""
    done = sum(of.judgments for of in passes)
    each = ", each judge counting its own" if any(len(pack.conduct) > 1 for pack in report.packs) else ""
    return (
        f"This run is unfinished: {done:,} of {done + left:,} traces judged or tried{each}. The figures rest on what the judge "
        "has come to, and those of choices among traces on the questions all of whose traces it has come to."
    )


def _on_whole_questions(pack: PackReport) -> str:
    """What a note adds where a choice among traces could not be measured on the whole pack."""
    if not any(of.missing for of in pack.conduct):
        return ""
    of = pack.composition
    return (
        f" Unfinished: on {of.come_to or 0:,} of {of.questions:,} questions, those all of whose traces the judge has come to, "
        "with the judges that have come to all of these."
    )


def _by_answers(packs: Iterable[PackReport]) -> str:
    """What a note on selection adds where any right is not what it is among the votes."""
    odd = any(pack.composition.at_odds for pack in packs)
    return " Any right goes by answers here, by labels among the votes without a judge." if odd else ""


def overview(report: Report) -> Table | None:
    """Strategies by packs and generators, each at the largest number of traces that all its questions have a share in."""
    columns = [
        (pack, generator)
        for pack in report.packs
        for generator in dict.fromkeys(row.generator for row in pack.selection)
    ]
    if not columns:
        return None
    names = dict.fromkeys((row.strategy, row.scorer) for pack in report.packs for row in pack.selection)
    rows = []
    for strategy, scorer in names:
        cells = [_at_most_traces(pack.selection, strategy, scorer, generator) for pack, generator in columns]
        rows.append((*words(strategy, scorer or ABSENT), *map(figure, cells)))
    header = ("strategy", "p from", *(_column(pack, generator) for pack, generator in columns))
    note = f"Accuracy of the answers picked. N: traces a question. {INTERVALS}{_by_answers(report.packs)}"
    note += "".join(f" {pack.name}:{said}" for pack in report.packs if (said := _on_whole_questions(pack)))
    return Table("Selection: strategies by generators", header, rows, len(columns), note)


def _column(pack: PackReport, generator: str) -> str:
    most = max(n for row in pack.selection if row.generator == generator for n in row.accuracy)
    return f"{pack.name}, {generator}, N = {most}"


def _at_most_traces(rows: Iterable[Selection], strategy: str, scorer: str, generator: str) -> Figure | None:
    for row in rows:
        if (row.strategy, row.scorer, row.generator) == (strategy, scorer, generator):
            return row.accuracy[max(row.accuracy)]
    return None


def composition(pack: PackReport) -> Table:
    """What was measured on."""
    of = pack.composition
    rows = [
        words("questions", f"{of.questions:,}"),
        words("traces", f"{of.traces:,}"),
        words("with a label", f"{of.labelled:,}"),
        words("right", f"{of.right:,}"),
        words("answer unreadable", f"{of.unreadable:,}"),
        words("label and answer disagree", f"{of.at_odds:,}"),
        words("questions without a known answer", f"{of.without_gold:,}"),
        *(
            words("questions all of whose traces were judged or tried", f"{n:,}")
            for n in (of.come_to,)
            if n is not None
        ),
        *(words(f"traces by {generator}", f"{count:,}") for generator, count in of.generators.items()),
    ]
    note = "Mean, any right and verification go by labels, votes and selection by answers: where these disagree, figures differ."
    return Table("What was measured on", ("", "count"), rows, 1, note if of.at_odds else "")


def votes(pack: PackReport) -> Table:
    """The traces without a judge."""
    rows = [(Cell(row.generator), *map(figure, (row.mean, row.majority, row.any_right))) for row in pack.votes]
    note = f"Unreadable traces count as wrong; tied answers share their vote. {INTERVALS}{_on_whole_questions(pack)}"
    return Table("Votes without a judge", ("generator", "mean", "majority", "any right"), rows, 3, note)


def verification(pack: PackReport) -> list[Table]:
    """How well each scorer tells right traces from wrong ones, a table a generator."""
    names = tuple(dict.fromkeys(name for row in pack.verification for name in row.figures))
    note = f"Traces: judged and with a label. {INTERVALS}"
    if any(of.missing for of in pack.conduct):
        note += " Unfinished: all scorers on traces that the judge has come to."
    if any(row.scorer.endswith(", calibrated") for row in pack.verification):
        note += " Calibrated: p after the judge's calibration, on questions that it was not fitted on."
    found = []
    for title, of in _by_generator("Verification", pack.verification):
        rows = [
            (*words(row.scorer, f"{row.traces:,}"), *(figure(row.figures.get(name)) for name in names)) for row in of
        ]
        found.append(Table(title, ("scorer", "traces", *names), rows, 1 + len(names), note))
    return found


def _by_generator(title: str, rows: Sequence[_Row]) -> list[tuple[str, list[_Row]]]:
    """The rows of each generator with a title, which names it where there are several."""
    names = list(dict.fromkeys(row.generator for row in rows))
    return [
        (f"{title}, {name}" if len(names) > 1 else title, [row for row in rows if row.generator == name])
        for name in names
    ]


def paired(found: Sequence[Paired]) -> Table | None:
    """The judge beside each other scorer."""
    rows = [(*words(one.second, row.name), *_differences(row)) for one in found for row in one.rows]
    if not rows:
        return None
    judge = found[0].first
    header = ("beside", "figure", judge, "other", "difference", "p-value")
    note = (
        "On the traces that both have judged; choices among N traces on the questions all of whose traces both have come to. "
        f"p-value: two-sided, of no difference. {INTERVALS}"
    )
    return Table(f"The {judge} beside others, on the same traces", header, rows, 4, note)


def comparison(found: Comparison) -> list[Table]:
    """Two runs, a table a pack."""
    header = ("figure", found.first, found.second, "difference", "p-value")
    return [
        Table(
            pack.name,
            header,
            [(Cell(row.name), *_differences(row)) for row in pack.rows],
            4,
            f"{pack.traces:,} traces of {pack.questions:,} questions in both runs, {pack.judged:,} judged by both. "
            f"Choices among N traces are compared on the {pack.come_to:,} questions all of whose traces both have come to. "
            f"Difference: first minus second. p-value: two-sided, of no difference. {INTERVALS}",
        )
        for pack in found.packs
    ]


def _differences(row: Compared) -> tuple[Cell, ...]:
    return (*words(number(row.first), number(row.second)), figure(row.difference), Cell(number(row.p_value)))


def selection(pack: PackReport) -> list[Table]:
    """Accuracy by strategy and number of traces, a table a generator."""
    note = f"Expected accuracy with N traces a question; questions with fewer give all they have. {INTERVALS}"
    note += _by_answers([pack])
    note += _on_whole_questions(pack)
    found = []
    for title, of in _by_generator("Selection by number of traces", pack.selection):
        sizes = sorted({n for row in of for n in row.accuracy})
        rows = [
            (*words(row.strategy, row.scorer or ABSENT), *(figure(row.accuracy.get(n)) for n in sizes)) for row in of
        ]
        found.append(Table(title, ("strategy", "p from", *(f"N = {n}" for n in sizes)), rows, len(sizes), note))
    return found


def budget(found: Budget, pack: PackReport) -> Table:
    """Samples spent and accuracy: the adaptive rule, then fixed numbers of traces with the same vote."""
    rows = [
        (
            *words("adaptive", "no early stop" if point.threshold is None else f"{point.threshold:.4g}"),
            Cell(f"{point.samples:.2f}"),
            figure(point.accuracy),
        )
        for point in found.points
    ]
    rows += [(*words("fixed", ABSENT, f"{n}"), figure(accuracy)) for n, accuracy in found.fixed.items()]
    title = f"Budget: {found.strategy}{f' with p from {found.scorer}' if found.scorer else ''}"
    return Table(
        title,
        ("spending", "threshold", "samples", "accuracy"),
        rows,
        2,
        f"{found.rule} {INTERVALS}{_on_whole_questions(pack)}",
    )


def savings(pack: PackReport) -> Table | None:
    """How many times fewer traces adaptive spending needs."""
    rows = [
        (
            *words(one.strategy, one.scorer or ABSENT, saving.against),
            figure(saving.times, 2),
            Cell(number(saving.samples, 2)),
            figure(saving.accuracy),
        )
        for one in pack.budgets
        for saving in one.savings
    ]
    header = ("strategy", "p from", "against", "saving, times", "samples", "accuracy")
    note = f"At no less accuracy; a dash: that accuracy is not reached. {INTERVALS}{_on_whole_questions(pack)}"
    return Table("Savings of the adaptive budget", header, rows, 3, note) if rows else None


def conduct(pack: PackReport) -> Table | None:
    """Searches, evidence and endings, one column a scorer."""
    lines: Sequence[tuple[str, Callable[[Conduct], Cell]]] = (
        ("judged or tried", lambda of: Cell(f"{of.judgments:,}")),
        ("not come to yet", lambda of: Cell(f"{of.missing:,}")),
        ("forced verdicts", lambda of: share(of.forced)),
        ("mean label mass", lambda of: figure(of.label_mass)),
        ("turns a trace", lambda of: figure(of.turns, 2)),
        ("searches a trace", lambda of: figure(of.searches_per_trace, 2)),
        ("traces without a search", lambda of: share(of.never_searched)),
        ("searches that showed nothing", lambda of: share(of.empty)),
        ("searches asked before", lambda of: share(of.repeated)),
        ("passages a search", lambda of: figure(of.passages_per_search, 2)),
        ("passages left out for want of room", lambda of: Cell(f"{of.omitted:,}")),
        ("passages well-formed", lambda of: share(of.well_formed)),
        ("passages found in the index", lambda of: share(of.resolved)),
    )
    return _by_scorer("Searches and evidence", pack.conduct, lines, INTERVALS)


def endings(pack: PackReport) -> Table | None:
    """Statuses and stop reasons, one column a scorer."""
    lines = [
        (f"{kind} {name}", _counted(field, name))
        for field, kind in (("statuses", "status"), ("stop_reasons", "ended by"))
        for name in dict.fromkeys(name for of in pack.conduct for name in getattr(of, field))
    ]
    return _by_scorer("Endings", pack.conduct, lines)


def _counted(field: str, name: str) -> Callable[[Conduct], Cell]:
    return lambda of: Cell(f"{getattr(of, field).get(name, 0):,}")


def cost(pack: PackReport) -> Table | None:
    """What a judged trace costs, one column a scorer."""
    lines: Sequence[tuple[str, Callable[[Cost], Cell]]] = (
        ("prompt tokens", lambda of: Cell(f"{of.prompt_tokens:.0f}")),
        ("tokens written", lambda of: Cell(f"{of.policy_tokens:.0f}")),
        ("tokens of evidence and tags", lambda of: Cell(f"{of.environment_tokens:.0f}")),
        ("tokens computed before decoding", lambda of: Cell(f"{of.prefilled_tokens:.0f}")),
        ("tokens from the cache", lambda of: Cell(f"{of.cached_tokens:.0f}")),
        ("searches", lambda of: Cell(f"{of.searches:.2f}")),
        ("seconds", lambda of: Cell(number(of.seconds, 2))),
    )
    return _by_scorer("Cost of one judged trace", pack.cost, lines)


def _by_scorer(
    title: str, scorers: Sequence[_Of], lines: Sequence[tuple[str, Callable[[_Of], Cell]]], note: str = ""
) -> Table | None:
    if not scorers:
        return None
    rows = [_row(name, map(line, scorers)) for name, line in lines]
    return Table(title, ("", *(of.scorer for of in scorers)), rows, len(scorers), note)


def _row(name: str, cells: Iterable[Cell]) -> tuple[Cell, ...]:
    return (Cell(name), *cells)


def agreement(found: Agreement) -> Table:
    """How far seeds agree."""
    rows = [
        words("traces judged with every seed", f"{found.traces:,}"),
        (Cell("pairs of seeds with the same verdict"), share(found.verdicts)),
        (Cell("traces with one verdict from all"), share(found.unanimous)),
        (Cell("Fleiss' kappa"), figure(found.kappa)),
        (Cell("mean standard deviation of p"), figure(found.spread)),
    ]
    title = f"Agreement over seeds {', '.join(map(str, found.seeds))}"
    return Table(title, ("", "value"), rows, 1, INTERVALS)


def failures(found: Sequence[Failure], most: int) -> Table | None:
    """The first so many that were not judged."""
    if not found:
        return None
    rows = [words(one.scorer, one.trace, one.status, one.stop_reason, one.detail) for one in found[:most]]
    header = ("scorer", "trace", "status", "ended by", "detail")
    note = f"The first {most} of {len(found):,}; report.json has all." if len(found) > most else ""
    return Table("Not judged", header, rows, 0, note, wide=True)


def of_pack(pack: PackReport, *, most_failures: int = 20) -> list[Table]:
    """All tables of a pack, in order."""
    found: list[Table | None] = [
        composition(pack),
        votes(pack),
        *verification(pack),
        paired(pack.paired),
        *selection(pack),
        savings(pack),
        *(budget(one, pack) for one in pack.budgets),
        conduct(pack),
        endings(pack),
        cost(pack),
        agreement(pack.agreement) if pack.agreement else None,
        failures(pack.failures, most_failures),
    ]
    return [table for table in found if table is not None]
