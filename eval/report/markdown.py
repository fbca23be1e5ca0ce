"""The report as Markdown: the tables, and links to the figures that lie beside it."""

from collections.abc import Iterable, Mapping

from eval.report import tables
from eval.report.page import plain
from eval.report.schema import Report
from eval.report.table import Table

#: What foreign names must not do: end a cell, open a tag, an entity, a link or code.
_ESCAPES = str.maketrans({character: f"\\{character}" for character in "\\|`*[]<>&"} | {"\n": " ", "\t": " "})


def render(report: Report, figures: Mapping[str, Mapping[str, str]]) -> str:
    """The report of one evaluation.

    Args:
        report: what was found.
        figures: by pack and file, relative to the Markdown: a sentence on what the figure shows.
    """
    judge = report.judge
    lines = [f"# Evaluation of {_text(judge.model)}" if judge else "# Votes without a judge", ""]
    if judge:
        seeds = ", ".join(map(str, judge.seeds))
        lines += [f"{judge.mode} mode, index {_text(judge.index)}, seeds {seeds}, judge id `{judge.judge_id}`.", ""]
    if told := tables.unfinished(report):
        lines += [f"**{told}**", ""]
    found = tables.overview(report)
    lines += table(found) if found else []
    for pack in report.packs:
        lines += [f"## {_text(pack.name)}", ""]
        for file, words in figures[pack.name].items():
            lines += [f"![{_text(words)}]({file})", ""]
        for one in tables.of_pack(pack):
            lines += table(one)
    return "\n".join(lines)


def document(title: str, found: Iterable[Table]) -> str:
    """Tables under a title."""
    return "\n".join([f"# {_text(title)}", "", *(line for one in found for line in table(one))])


def table(one: Table) -> list[str]:
    """The lines of one table, with its title before and its note behind it."""
    words = len(one.header) - one.numbers
    rule = "|".join([""] + ["---"] * words + ["---:"] * one.numbers + [""])
    rows = [_row(f"{_text(cell.text)} {cell.interval}".rstrip() for cell in row) for row in one.rows]
    note = [one.note.replace("\n", " "), ""] if one.note else []
    return [f"**{_text(one.title)}**", "", _row(map(_text, one.header)), rule, *rows, "", *note]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    return plain(text).translate(_ESCAPES)
